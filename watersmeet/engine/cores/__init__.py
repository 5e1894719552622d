"""One join on several cores, each a process with its own part of the windows.

    StreamJoin -> Team  -- batch, in shared memory -->  Member  each picks what the route gives it,
                        <-- results, likewise --------          and joins it with what it has stored

Processes, not threads: a push is a hundred short kernels with Python between them, and threads of one interpreter wait
for each other at each of these steps. A batch is copied once, into memory that all members map; what comes out is
mapped by the caller, and not copied.

    team.py       what StreamJoin sees: sends batches out, collects results, undoes
    member.py     what one core does
    collect.py    results of all cores in one order
    process.py    the processes, which serve one join after the other
    channel.py    messages, with memory attached
    segments.py   shared memory that has no name, so that nothing is left behind, whoever is killed
"""
