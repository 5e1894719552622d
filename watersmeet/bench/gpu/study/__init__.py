"""The study of stream joins on GPUs: every kind of join in one frame, on one workload.

    streams ---> window manager ---> joiner ---> sink
    (memory)     lazy: a window      nested loop, hash, sort-merge
                 at its end          on CPU threads or a GPU
                 eager: batches      counts, or makes pairs

Two streams of 16-byte tuples (key, value, time) lie in memory before the clock starts. The window manager cuts them
into tumbling windows and hands these, or the batches they are made of, to a joiner. The sink counts results, notes when
they came, and verifies them: how many there must be, and what their checksum must be, follows from the keys alone.

    space.py      the kinds of joins, and which of them well-known systems are
    streams.py    tuples, skew, what must come out
    manager.py    windows, lazy and eager, on to one joiner
    sink.py       counts and checks
    cpu.py, gpu.py, with their kernels: the joiners (gpu.py with lanes.py and lookups.py)

Reference: the study of GPU-accelerated stream joins, sections 2 and 3.
Differs from it: windows are places in the streams' own memory, not copies in ring buffers; a joiner may be told to send
keys only, 4 bytes of the 16.
"""
