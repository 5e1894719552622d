"""The live page: how a join goes, in a browser (docs/page.md).

    join or query --> samples, once a second --> [ process: the last hour, HTTP ] --> browsers
     sampler.py, spark.py      page.py                   serving/                     serving/page.html

A sample is plain data, the same for both carriers. It is made at the end of a call of the join, in that call's turn, so
that nobody waits for it. Everything else, and as many browsers as there may be, is another process's business, which
has nothing but Python's standard library in it.
"""
