"""Functions, casts and literals: one value in, one value out, with Spark's answers."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.query import parse
from watersmeet.query.evaluate import bind
from watersmeet.query.node import Rows

MOMENT = datetime.datetime(2024, 2, 29, 13, 14, 15, 123456)
ROW = {
    "a": pa.array([5], pa.int64()),
    "n": pa.array([None], pa.int64()),
    "neg": pa.array([-7], pa.int64()),
    "big": pa.array([2**63 - 1], pa.int64()),
    "x": pa.array([2.5]),
    "nan": pa.array([float("nan")]),
    "d": pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
    "s": pa.array(["  Abc "]),
    "w": pa.array(["watersmeet"]),
    "num": pa.array(["12.5"]),
    "bad": pa.array(["twelve"]),
    "t": pa.array([True]),
    "day": pa.array([datetime.date(2024, 2, 29)]),
    "ts": pa.array([MOMENT], pa.timestamp("us")),
    "old": pa.array([datetime.datetime(1969, 12, 31, 23, 59, 59)], pa.timestamp("s")),
    "zs": pa.array([0], pa.timestamp("ms", "UTC")),
    "time": pa.array([datetime.time(1, 2, 3)], pa.time64("us")),
}
BATCH = pa.record_batch(ROW)

TRUE = """
l.a % 3 = 2
l.neg % 3 = -1
l.neg div 2 = -3
l.a / 2 = 2.5
10 / 4 = 2.5
l.a / 0 is null
l.a % 0 is null
l.a div 0 is null
l.x / 0 is null
l.big + 1 > l.big
l.big * l.big > l.big
-l.big - 2 < -l.big
0.1 + 0.2 = 0.3
1e-1 + 2e-1 <> 3e-1
1e-3 = 0.001
floor(l.x) = 2
ceil(l.x) = 3
floor(l.d) = 1
ceil(l.d) = 2
floor(-l.d) = -2
ceil(-l.d) = -1
round(l.x) = 3
round(-l.x) = -3
round(l.d, 1) = 1.3
round(-l.d, 1) = -1.3
round(15, -1) = 20
round(1e15 + l.x, 13) = 1e15 + l.x
round(9.1e15, -16) = 1e16
round(1.7e308, -30) = 1.7e308
round(5e-324, 30) = 0
round(1e22 + 5e21, -22) = 2e22
sign(l.neg) = -1
abs(l.neg) = 7
- l.neg = 7
+l.a = 5
l.a = 5L
l.x = 2.5D
sqrt(l.a + 4) = 3
exp(0) = 1
ln(1) = 0
ln(0) is null
pow(l.a, 2) = 25
least(l.a, 3, l.n) = 3
greatest(l.a, l.x) = 5
greatest(l.nan, 1.0) = l.nan
least(l.n, l.n) is null
l.nan = l.nan
l.nan > 1e308
l.nan <> 1
isnan(l.nan)
not isnan(l.x)
upper(l.w) = 'WATERSMEET'
lower(upper(l.w)) = l.w
trim(l.s) = 'Abc'
ltrim(l.s) = 'Abc '
length(l.s) = 6
substring(l.w, 1, 5) = 'water'
substring(l.w, 6) = 'smeet'
substring(l.w, -4) = 'meet'
substr(l.w, -4, 2) = 'me'
concat(l.w, '!') = 'watersmeet!'
l.w || null is null
l.w || 'x' = 'watersmeetx'
'it\'\'s' = "it's"
x'00ff' = x'00FF'
l.w like 'water%'
l.w not like 'Water%'
l.w ilike 'WATER_MEET'
l.w rlike 'e+t$'
'a%b' like 'a!%b' escape '!'
'axb' not like 'a!%b' escape '!'
starts_with(l.w, 'wa')
ends_with(l.w, 'et')
contains(l.w, 'smee')
startswith(l.w, l.w)
year(l.day) = 2024
month(l.day) = 2
day(l.day) = 29
hour(l.ts) = 13
minute(l.ts) = 14
second(l.ts) = 15
year(l.old) = 1969
second(l.old) = 59
hour(l.time) = 1
extract(year from l.ts) = 2024
date_trunc('hour', l.ts) = timestamp '2024-02-29 13:00:00'
date_trunc('month', l.ts) = timestamp '2024-02-01 00:00:00'
date_trunc('week', l.ts) = timestamp '2024-02-26 00:00:00'
date_trunc('year', l.day) = timestamp '2024-01-01 00:00:00'
l.day = '2024-02-29'
l.ts > '2024-02-29 13:14:15'
l.day < l.ts
l.day + 1 = date '2024-03-01'
l.day - date '2024-02-28' = interval 1 day
datediff(l.day, date '2024-03-01') = -1
to_date(l.ts) = l.day
date_add(l.day, 2) = date '2024-03-02'
l.ts + interval '1' day > timestamp '2024-03-01 13:14:15'
l.ts - l.ts = interval 0 seconds
l.zs = timestamp '1970-01-01 01:00:00+01:00'
l.time > time '01:00:00'
cast(l.num as int) is null
cast(' 12 ' as int) = 12
cast(l.num as double) = 12.5
cast(l.num as decimal(3,1)) = 12.5
cast(l.bad as int) is null
cast(l.x as int) = 2
cast(l.nan as int) is null
cast(300 as tinyint) is null
cast(l.d as int) = 1
cast(l.d as decimal(3,1)) = 1.3
cast(l.d as string) = '1.25'
cast(l.a as string) = '5'
cast(l.t as int) = 1
cast('true' as boolean)
cast(l.ts as date) = l.day
cast(l.day as timestamp_ntz) < l.ts
cast('x' as date) is null
cast(l.zs as timestamp_ntz) = timestamp '1970-01-01 00:00:00'
try_cast('12' as bigint) = 12
l.a::string = '5'
cast('NaN' as double) = l.nan
cast(1e-1 as float) <> 1e-1
case when l.a > 9 then 'big' when l.a > 3 then 'mid' end = 'mid'
case l.a when 5 then 1 else 2 end = 1
if(l.n > 1, 1, 2) = 2
coalesce(l.n, l.a) = 5
nullif(l.a, 5) is null
nvl(l.n, 3) = 3
ifnull(l.n, 1.5) = 1.5
l.n is null
l.a is not null
isnotnull(l.a)
l.t is true
l.t is not false
(l.n = 1) is null
l.n <=> null
not (l.n <=> l.a)
l.a is distinct from l.n
l.n is not distinct from l.n
l.a in (1, 5)
l.a not in (1, 2)
(l.a in (1, null)) is null
l.a between 5 and 5
l.a not between 6 and 9
"""


@pytest.mark.parametrize("text", TRUE.strip().splitlines())
def test_this_is_true(text):
    node = bind(parse(text), BATCH.schema, BATCH.schema)
    with np.errstate(all="ignore"):
        data, valid = node.run(Rows(BATCH, BATCH, 1))
    assert data[0] and (valid is None or valid[0])


@pytest.mark.parametrize(
    "arrow", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_kind_of_text_column_reads_alike(arrow):
    array = (
        pa.array(["b", None, "a"]).cast(arrow)
        if not pa.types.is_dictionary(arrow)
        else pa.array(["b", None, "a"]).dictionary_encode()
    )
    batch = pa.record_batch({"s": array})
    data, valid = bind(parse("l.s >= 'b'"), batch.schema, batch.schema).run(Rows(batch, batch, 3))
    assert (data & valid).tolist() == [True, False, False]


@pytest.mark.parametrize(
    "arrow, values",
    [
        (pa.int8(), [-128, 127]),
        (pa.uint8(), [0, 255]),
        (pa.int16(), [-(2**15), 5]),
        (pa.uint16(), [65535]),
        (pa.uint32(), [2**32 - 1]),
        (pa.uint64(), [2**64 - 1, 0]),
        (pa.decimal128(38, 0), [10**37, -(10**37), 3]),
        (pa.decimal256(76, 3), [Decimal(10**70), Decimal("-0.001")]),
        (pa.decimal32(5, 2), [Decimal("1.25")]),
        (pa.decimal64(12, 4), [Decimal("-1.2500")]),
        (pa.float16(), [1.5]),
        (pa.decimal128(5, -2), [Decimal("12300")]),
    ],
)
def test_every_kind_of_number_column_reads_exactly(arrow, values):
    array = pa.array([np.float16(v) for v in values] if arrow == pa.float16() else [*values, None], arrow)
    batch = pa.record_batch({"v": array}).slice(0)
    data, valid = bind(parse("l.v"), batch.schema, batch.schema).run(Rows(batch, batch, len(array)))
    scale = max(0, arrow.scale) if pa.types.is_decimal(arrow) else 0
    for i, value in enumerate(values):
        assert data[i] == value * 10**scale
    assert valid is None or not valid[-1]


def test_numbers_beyond_every_double_compare_as_infinite():
    huge = " * ".join(["l.big"] * 20)
    data, _ = bind(parse(f"{huge} > l.x and cast({huge} as bigint) is null"), BATCH.schema, BATCH.schema).run(
        Rows(BATCH, BATCH, 1)
    )
    assert data[0]
