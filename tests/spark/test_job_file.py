"""Job files: what is read from them, and the errors that name the key."""

from dataclasses import fields
from pathlib import Path

import pytest

import watersmeet as wm
from watersmeet.spark.job import Cluster, JobError, Join, Run, Sink, Source, load

JOB = """
[left]
format = "parquet"
path = "trades"

[right]
format = "parquet"
path = "quotes"

[join]
on = "abs(l.price - r.price) <= 0.05"
window = "within 1 second"

[sink]
format = "parquet"
path = "matches"

[run]
checkpoint = "checkpoint"
"""


@pytest.fixture
def job_file(tmp_path):
    def write(text=JOB, **changes):
        for before, after in changes.get("replace", {}).items():
            assert before in text
            text = text.replace(before, after)
        path = tmp_path / "job.toml"
        path.write_text(text)
        return path

    return write


def test_the_least_job_has_the_defaults_of_stream_join(job_file):
    job = load(job_file())
    assert job.join.on == "abs(l.price - r.price) <= 0.05"
    assert job.join.window == wm.within("1 second")
    assert (job.join.how, job.join.suffix, job.join.options) == ("inner", "_right", {})
    assert job.run.trigger is None
    assert job.left.options == {}


def test_relative_paths_start_at_the_job_file_and_others_stay(job_file, tmp_path):
    job = load(job_file(replace={'"quotes"': '"s3a://market/quotes"', '"matches"': '"/data/matches"'}))
    assert job.left.path == str(tmp_path / "trades")
    assert job.right.path == "s3a://market/quotes"
    assert job.sink.path == "/data/matches"
    assert job.run.checkpoint == str(tmp_path / "checkpoint")


def test_options_become_text_and_names_may_have_dots(job_file):
    left = """format = "kafka"
    [left.options]
    kafka.bootstrap.servers = "broker:9092"
    "startingOffsets" = "earliest"
    includeHeaders = true
    maxOffsetsPerTrigger = 1000
    subscribe = "trades"
    """
    job = load(job_file(replace={'format = "parquet"\npath = "trades"': left}))
    assert job.left.options == {
        "kafka.bootstrap.servers": "broker:9092",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "1000",
        "subscribe": "trades",
    }


KAFKA = """
[left]
format = "kafka"
servers = "broker:9092"
topic = "trades"
value = "json"
schema = "id bigint, price double, ts timestamp"
bad_rows = "drop"
where = "price > 0"

[right]
format = "Kafka"
value = "arrow"
schema = "price double, ts timestamp"
options.KAFKA.bootstrap.servers = "broker:9092"
options.subscribePattern = "quotes.*"

[join]
on = "abs(l.price - r.price) <= 0.05"
window = "within 1 second"

[sink]
format = "kafka"
servers = "broker:9092"
topic = "matches"
value = "json"
key = "concat(id, '-', ts_right)"

[run]
checkpoint = "checkpoint"

[spark]
packages = ["org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"]
"""


def test_kafka_has_keys_of_its_own(job_file):
    job = load(job_file(KAFKA))
    assert job.left.options == {"kafka.bootstrap.servers": "broker:9092", "subscribe": "trades"}
    assert job.right.options == {"KAFKA.bootstrap.servers": "broker:9092", "subscribePattern": "quotes.*"}
    assert job.sink.options == {"kafka.bootstrap.servers": "broker:9092", "topic": "matches"}
    assert (job.left.value, job.right.value, job.sink.value) == ("json", "arrow", "json")
    assert job.sink.key == "concat(id, '-', ts_right)"
    assert job.bad_rows == ("drop", "fail")
    assert job.spark.packages == ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0",)


@pytest.mark.parametrize(("given", "expected"), [('"drop"', ("drop", "drop")), ('["fail", "drop"]', ("drop", "drop"))])
def test_bad_rows_of_a_side_go_before_those_of_the_join(job_file, given, expected):
    text = KAFKA.replace("[join]\n", f"[join]\nbad_rows = {given}\n")
    assert load(job_file(text)).bad_rows == expected
    text = text.replace('bad_rows = "drop"\nwhere', 'bad_rows = "fail"\nwhere')
    assert load(job_file(text)).bad_rows == ("fail", "drop")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('servers = "broker:9092"\ntopic = "trades"', 'topic = "trades"', 'left.servers: is missing: "broker:9092"'),
        ('topic = "trades"\n', "", 'left.topic: is missing: "trades"'),
        ('topic = "matches"\n', "", "sink.topic: is missing"),
        ('topic = "trades"', 'topic = "t"\noptions.subscribe = "t"', "left.topic: and options.subscribe cannot both"),
        ('value = "json"\nschema', 'value = "avro"\nschema', "left.value: must be one of json, arrow, not 'avro'"),
        ('value = "json"\nkey', 'value = "arrow"\nkey', "sink.value: must be \"json\", not 'arrow'"),
        ('value = "json"\nkey', "key", 'sink.value: is missing: "json"'),
        ('schema = "id bigint, price double, ts timestamp"\n', "", "left.schema: is missing: what is in the json"),
        ('value = "json"\nschema', "schema", 'left.value: is missing: "json" or "arrow"'),
        ('bad_rows = "drop"', 'bad_rows = "skip"', "left.bad_rows: must be one of fail, drop, not 'skip'"),
        ('[left]\nformat = "kafka"', '[left]\nformat = "csv"', 'left.servers: is for format = "kafka", and this'),
        ('"org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"', '"kafka"', 'spark.packages: must be "group:artifact:'),
        ("[spark]", '[spark]\nconf.spark.jars.packages = "a:b:1"', "spark.packages: and conf.spark.jars.packages"),
    ],
)
def test_a_mistake_about_kafka_names_the_key(job_file, before, after, message):
    assert before in KAFKA
    path = job_file(KAFKA.replace(before, after))
    with pytest.raises(JobError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_each_side_may_have_its_time_and_lateness(job_file):
    window = 'window = "hopping 1 hour, 5 minutes"\ntime = ["ts", "seen_at"]\nlateness = ["0", "2 seconds"]'
    job = load(job_file(replace={'window = "within 1 second"': window}))
    assert job.join.window == wm.hopping("1 hour", "5 minutes", ("ts", "seen_at"), (0, "2 seconds"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [('"1 minute"', "1 minute"), ('["1 minute", "never"]', ("1 minute", None)), ("90", 90), ('"never"', None)],
)
def test_a_side_may_be_idle_after_a_while(job_file, text, expected):
    job = load(job_file(replace={'window = "within 1 second"': f'window = "within 1 second"\nidle_after = {text}'}))
    assert job.join.window == wm.within("1 second", idle_after=expected)


def test_the_environment_fills_in(job_file, monkeypatch):
    path = job_file(replace={'"trades"': '"/data/${DAY}/trades"'})
    with pytest.raises(JobError, match=r"left\.path: the environment variable DAY is not set"):
        load(path)
    monkeypatch.setenv("DAY", "2026-01-05")
    assert load(path).left.path == "/data/2026-01-05/trades"


def test_a_table_stands_for_format_and_path(job_file):
    job = load(job_file(replace={'format = "parquet"\npath = "trades"': 'table = "market.trades"'}))
    assert (job.left.table, job.left.format, job.left.path) == ("market.trades", None, None)


@pytest.mark.parametrize("form", ["console", "memory", "noop"])
def test_a_sink_that_keeps_nothing_needs_no_checkpoint(job_file, form):
    sink = {'[sink]\nformat = "parquet"\npath = "matches"': f'[sink]\nformat = "{form}"'}
    job = load(job_file(replace=sink | {'[run]\ncheckpoint = "checkpoint"': ""}))
    assert job.run.checkpoint is None


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[sink]", "[sinks]", "sink: is missing"),
        ("[sink]", "[[sink]]", "sink: must be a table"),
        ('path = "trades"', 'pth = "trades"', "left.pth: is not a key of [left]; did you mean path?"),
        ("[run]", "[schedule]\n[run]", "schedule: is not a key of a job; known are left, right, join"),
        ('path = "quotes"', "path = 7", "right.path: must be text, not 7"),
        ('path = "quotes"', 'path = ""', "right.path: must not be empty"),
        ('path = "quotes"', 'path = "q"\ntable = "q"', "right.path: and table cannot both be given"),
        ('path = "quotes"', 'select = "a"', "right.select: must be a list of texts, not 'a'"),
        ('path = "quotes"', "select = [1]", "right.select: must be a list of texts"),
        ('path = "quotes"', "options = 1", "right.options: must be a table"),
        ('path = "quotes"', "options.a = [1]", "right.options.a: must be one value"),
        ('[right]\nformat = "parquet"', "[right]", "right.format: is missing"),
        ('"parquet"\npath = "quotes"', '"parquet_files"', "right.path: is missing"),
        ('"parquet"\npath = "quotes"', '"parquet_files"\npath = "q"\nwhere = "a"', "right.where: is not for format"),
        ('"parquet"\npath = "quotes"', '"parquet_files"\npath = "q"\nselect = ["a"]', "right.select: is not for"),
        ("on = ", "# on = ", "join.on: is missing"),
        ("within 1 second", "within 1 parsec", "join.window: before is not a length of time: '1 parsec'"),
        ("within 1 second", "around noon", "join.window: it must begin with one of within"),
        ("within 1 second", "last 100", "join.window: must be of time on Spark (within, tumbling, hopping)"),
        ('[sink]\nformat = "parquet"', 'lateness = "soon"\n[sink]\nformat = "parquet"', "join.lateness: it is not"),
        ('[sink]\nformat = "parquet"', 'lateness = ["0"]\n[sink]\nformat = "parquet"', "join.lateness: must be text"),
        ('[sink]\nformat = "parquet"', 'idle_after = "soon"\n[sink]\nformat = "parquet"', "join.idle_after: it is not"),
        ('[sink]\nformat = "parquet"', 'time = 3\n[sink]\nformat = "parquet"', "join.time: must be text"),
        ('[sink]\nformat = "parquet"', 'how = "outer"\n[sink]\nformat = "parquet"', "join.how: must be one of inner"),
        ('checkpoint = "checkpoint"', "", "run.checkpoint: is missing"),
        ('checkpoint = "checkpoint"', 'trigger = "now"', 'run.trigger: must be "available now" or a length'),
        ("[run]", '[spark]\nmaster = "local"\nremote = "local"\n[run]', "spark.remote: and master cannot both"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(job_file, before, after, message):
    path = job_file(replace={before: after})
    with pytest.raises(JobError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_file_that_is_not_there_or_not_toml(tmp_path):
    with pytest.raises(JobError, match="there is no such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(JobError, match="cannot be read"):
        load(tmp_path)
    Path(tmp_path, "job.toml").write_text("[left\n")
    with pytest.raises(JobError, match="is not valid TOML: .*line 1"):
        load(tmp_path / "job.toml")


def test_the_job_of_the_documentation_is_one(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
    (tmp_path / "job.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    monkeypatch.setenv("BROKER", "broker:9092")
    job = load(tmp_path / "job.toml")
    assert job.right.options["kafka.bootstrap.servers"] == "broker:9092"
    assert job.right.options["subscribe"] == "quotes"


def test_the_jobs_of_the_page_about_kafka_are_some(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()
    whole, jars = (block.partition("```")[0] for block in page.split("```toml\n")[1:])
    monkeypatch.setenv("BROKER", "broker:9092")
    (tmp_path / "job.toml").write_text(whole)
    job = load(tmp_path / "job.toml")
    assert job.bad_rows == ("drop", "drop") and job.sink.options["topic"] == "matches"
    (tmp_path / "job.toml").write_text(whole.partition("[spark]")[0] + jars)
    assert load(tmp_path / "job.toml").spark.conf["spark.jars"].count(".jar") == 4


def test_every_key_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
    for table in (Source, Join, Sink, Run, Cluster):
        for key in fields(table):
            if (table, key.name) != (Join, "options"):
                assert f"`{key.name}`" in page


def test_a_job_may_pick_one_partner(job_file):
    job = load(job_file(replace={"[join]\n": '[join]\npick = "nearest"\npick_by = "abs(l.price - r.price)"\n'}))
    assert job.join.options == {"pick": "nearest", "pick_by": "abs(l.price - r.price)"}
