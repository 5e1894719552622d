"""The page of an embedded join, as its server answers."""

import gc
import http.client
import itertools
import json
import socket
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.page.page import Page, plain
from watersmeet.page.sampler import behind, page_of, sample_of
from watersmeet.page.serving.serve import policy

TOKEN = "a-token-of-letters"
SCRIPT = "<script>alert(1)</script>"


def batch(number, rows=100, time_type=None):
    ts = pa.array(np.arange(number * rows, (number + 1) * rows))
    return pa.record_batch({"ts": ts if time_type is None else ts.cast(time_type), "k": np.arange(rows) % 7})


def join(**options):
    return wm.StreamJoin("l.k = r.k", wm.within(50, lateness=10), cores=1, output="count", **options)


def data(page, query=""):
    with urllib.request.urlopen(f"{page.address}data{query}", timeout=60) as answer:
        return json.load(answer)


def sample(page, true=lambda sample: True, seconds=60.0):
    """The first sample that is as wanted."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = data(page)["sample"]
        if found is not None and true(found):
            return found
        time.sleep(0.02)
    raise AssertionError(f"no such sample; the last: {found}")


def status(page, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", int(page.address.rsplit(":")[-1].rstrip("/")), timeout=60)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def test_the_page_has_what_metrics_and_explain_have():
    running = join()
    with page_of(running, 0, None, every=0.05) as page:
        for number in range(5):
            running.push(left=batch(number), right=batch(number))
        with pytest.raises(ValueError):
            running.push(left=pa.table({"ts": [1]}))
        found = sample(page, lambda one: one["metrics"]["pushes"] == 5 and one["totals"]["bad"] == 1)
        assert found["metrics"] == running.metrics.to_dict()
        assert found["plan"] == running.explain()
        assert found["state"] == "open"
        assert found["sides"]["left"]["watermark"] == str(running.metrics.watermark) == found["watermark"]
        out = running.metrics.rows_out
        assert found["totals"] == {"rows_in": 1000, "rows_out": out, "calls": 5, "late": 0, "bad": 1}
        running.close()
        assert sample(page, lambda one: one["state"] == "closed")["metrics"]["stored_left"] == 0


def test_every_sample_is_of_one_moment_while_others_push():
    """A sample has the figures that the join had between two pushes, however many threads push."""
    running = join()
    seen = {}
    enough = threading.Event()

    def push():
        for number in itertools.count():
            running.push(left=batch(number), right=batch(number))
            seen[running.metrics.pushes] = running.metrics.to_dict()
            if enough.is_set():
                return

    thread = threading.Thread(target=push)
    compared = {}
    with page_of(running, 0, None, every=0.01) as page:
        thread.start()
        try:
            until = time.monotonic() + 60
            while len(compared) < 20 and thread.is_alive() and time.monotonic() < until:
                if (one := data(page)["sample"]) is not None:
                    compared[one["metrics"]["pushes"]] = one
                time.sleep(0.002)
        finally:
            enough.set()
            thread.join()
    timed = ("seconds",)  # this moves between a push and the call of metrics behind it
    assert len(compared) == 20
    for pushes, one in compared.items():
        if pushes:
            assert {k: v for k, v in one["metrics"].items() if k not in timed} == {
                k: v for k, v in seen[pushes].items() if k not in timed
            }


def test_rates_lags_and_latencies_come_from_two_looks():
    metrics = join().metrics.to_dict()
    before = {"at": 10.0, "metrics": metrics, "refused": 1, "state": "open", "plan": ""}
    later = metrics | {"rows_in_left": 300, "rows_in_right": 100, "rows_out": 50, "late_right": 5, "pushes": 4}
    now = before | {
        "at": 12.0, "metrics": later | {"seconds": metrics["seconds"] | {"probe": 0.5}}, "refused": 2,
        "behind": {"unit": "s", "other": {"left": 0.0, "right": 3.0}, "clock": {}},
    }  # fmt: skip
    found = sample_of(now, before, [0.1, 0.2, 0.3, 0.4])
    figures = found["figures"]
    assert (figures["in_left"], figures["in_right"], figures["out"]) == (150.0, 50.0, 25.0)
    assert (figures["p50"], figures["busy"]) == (pytest.approx(0.25), pytest.approx(0.5))
    assert figures["p99"] == pytest.approx(0.397)
    assert (figures["late"], figures["bad"], figures["lag_right"]) == (2.5, 0.5, 3.0)
    assert found["steps"] == dict.fromkeys(metrics["seconds"], 0.0) | {"probe": 0.5}
    cores = [before | {"metrics": metrics | {"works": spent, "waits": spent}} for spent in ([1.0, 2.0], [4.0, 8.0])]
    assert sample_of(cores[1], cores[0], [])["works"] == [3.0, 6.0], "since the look before"
    assert sample_of(cores[1], before, [])["waits"] == [4.0, 8.0], "which it had none of"
    first = sample_of(before, {}, [])["figures"]
    assert first["in_left"] is first["busy"] is first["p50"] is first["bad"] is None


def test_lag_is_in_seconds_or_in_ticks_and_by_the_clock_where_times_are_of_it():
    running = join(left_schema=batch(0).schema, right_schema=batch(0).schema)
    found = behind(running._core.window, {"left": 100, "right": 70}, 0)
    assert found == {"unit": "", "other": {"left": 0, "right": 30}, "clock": {}}
    schema = batch(0, time_type=pa.timestamp("ms")).schema
    timed = wm.StreamJoin("l.k = r.k", wm.within("1 s"), left_schema=schema, right_schema=schema)
    found = behind(timed._core.window, {"left": 2_000, "right": None}, 5 * 10**9)
    assert found == {"unit": "s", "other": {"left": 0.0}, "clock": {"left": 3.0}}
    schema = batch(0, time_type=pa.duration("ms")).schema
    timed = wm.StreamJoin("l.k = r.k", wm.within("1 s"), left_schema=schema, right_schema=schema)
    assert behind(timed._core.window, {"left": 2_000, "right": 0}, 5 * 10**9)["clock"] == {}


def test_joins_without_time_without_rows_and_of_one_stream_have_pages():
    rows = batch(0)
    for made, pushed in [
        (wm.StreamJoin("l.k = r.k", wm.last(10), output="count"), {"left": rows, "right": rows}),
        (wm.StreamJoin("l.k < r.k", wm.within(10)), {}),
        (wm.StreamJoin("l.k = r.k", wm.within(10), self_join=True), {"left": rows}),
    ]:
        with page_of(made, 0, None, every=0.05) as page:
            made.push(**pushed)
            found = sample(page, lambda one, made=made: one["metrics"]["pushes"] == made._metrics.pushes)
            assert found["metrics"] == made.metrics.to_dict() and found["plan"] == made.explain()


def test_cores_and_hot_keys(threads):
    rows = pa.table({"ts": range(2000), "k": [7 if i % 2 else i for i in range(2000)]})
    running = wm.StreamJoin("l.k = r.k", wm.within(100), cores=2, route="hot_cold", output="count")
    with running, page_of(running, 0, None, every=0.05) as page:
        running.push(left=rows, right=rows)
        found = sample(page, lambda one: one["loads"])
        assert found["metrics"] == running.metrics.to_dict()
        assert len(found["loads"]) == 2 and found["hot"] == {"left k = 7": 0.25, "right k = 7": 0.25}
        assert len(found["works"]) == len(found["waits"]) == 2 and min(found["metrics"]["works"]) > 0
        assert found["phases"].keys() == {"write", "route", "step", "collect"} == found["metrics"]["phases"].keys()
        assert found["figures"]["runs_left"] == running.metrics.subwindows_left >= 2


def test_a_failed_call_is_undone_with_a_page_as_without():
    running = join()
    with page_of(running, 0, None, every=0.05):
        running.push(left=batch(0), right=batch(0))
        before = running.metrics.to_dict()

        def interrupted(since):
            raise KeyboardInterrupt

        watcher, done = running._calls.watcher, running._calls.watcher.done
        watcher.done = interrupted
        with pytest.raises(KeyboardInterrupt):
            running.push(left=batch(1))
        watcher.done = done
        assert running.metrics.to_dict() == before
        without = join()
        without.push(left=batch(0), right=batch(0))
        assert running.push(right=batch(1)) == without.push(right=batch(1))


def test_markup_in_names_stays_text():
    rows = batch(0).rename_columns(["ts", SCRIPT])
    running = wm.StreamJoin(f'l."{SCRIPT}" = r."{SCRIPT}"', wm.within(10), output="count")
    with page_of(running, 0, None, every=0.05) as page:
        running.push(left=rows, right=rows)
        assert SCRIPT in sample(page, lambda one: one["metrics"]["pushes"])["plan"]
        code, html, headers = status(page)
        assert code == 200 and SCRIPT not in html  # names come as data only
        code, text, headers = status(page, "/data")
        assert SCRIPT in json.loads(text)["about"]["title"]
        assert headers["Content-Type"] == "application/json" and headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_runs_nothing_and_loads_nothing_but_what_is_in_it():
    with Page("t", "embedded", 0) as page:
        code, html, headers = status(page)
    allowed = headers["Content-Security-Policy"]
    assert code == 200 and allowed == policy(html)
    assert "default-src 'none'" in allowed and "unsafe" not in allowed and "connect-src 'self'" in allowed
    assert html.count("<script") == html.count("<style") == 1 and "style=" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert not any(word in html for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("))
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"


def test_requests_of_other_sites_are_refused():
    with Page("t", "embedded", 0) as page:
        host = page.address[len("http://") : -1]
        for path in ("/", "/data"):
            assert status(page, path)[0] == 200
            assert status(page, path, Origin=f"http://{host}")[0] == 200
            assert status(page, path, Host="evil.example")[0] == 403
            assert status(page, path, Host="evil.example:80", Origin="http://evil.example:80")[0] == 403
            assert status(page, path, Origin="http://evil.example")[0] == 403
            assert status(page, path, Origin="http://localhost:1")[0] == 403
            assert status(page, path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0] == 403
        assert "Access-Control-Allow-Origin" not in status(page, "/data")[2]
        assert status(page, "/../page.html")[0] == 404 and status(page, "http://evil.example/")[0] in (403, 404, 200)
        assert status(page, "/", "POST")[0] == 501 and status(page, "/", "HEAD")[:2] == (200, "")


def test_a_page_with_a_token_is_for_those_who_show_it():
    with Page("t", "embedded", "127.0.0.1:0", TOKEN) as page:
        assert TOKEN in page.url and TOKEN not in page.address and TOKEN not in repr(page)
        for path in ("/", "/data", "/?token=another-of-letters", "/data?token="):
            code, text, _ = status(page, path)
            assert code == 403 and "token" in text
        code, _, headers = status(page, f"/?token={TOKEN}")
        assert (code, headers["Location"]) == (303, "/")
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite" in cookie
        assert status(page, "/", Cookie=cookie.partition(";")[0])[0] == 200
        assert status(page, "/data", Authorization=f"Bearer {TOKEN}")[0] == 200
        assert status(page, "/data", Authorization=f"Bearer {TOKEN}", Origin="http://evil.example")[0] == 403


def test_a_browser_that_comes_again_gets_only_what_is_new():
    with Page("t", "embedded", 0) as page:
        for at in range(5):
            page.send({"at": float(at), "figures": {"out": at, "p50": float("nan")}})
        while len((all := data(page))["points"]) < 5:
            time.sleep(0.01)
        out, p50 = (all["names"].index(name) + 1 for name in ("out", "p50"))
        found = [(point[0], point[out], point[p50]) for point in all["points"]]
        assert found == [(float(at), at, None) for at in range(5)]
        known = all["about"]["id"]
        assert [one[0] for one in data(page, f"?since=2&of={known}")["points"]] == [3.0, 4.0]
        assert data(page, f"?since=4.0&of={known}")["points"] == []
        for query in ("?since=2&of=another", "?since=nonsense&of=" + known, "?since=nan&of=" + known, "?since=2"):
            again = data(page, query)
            assert again["all"] and len(again["points"]) == 5


def test_two_joins_have_two_pages():
    first, second = join(), join()
    with first.page(0) as one, second.page(0) as other:
        assert one.url != other.url
        first.push(left=batch(0), right=batch(0))
        assert sample(one, lambda found: found["metrics"]["pushes"] == 1)
        assert sample(other)["metrics"]["pushes"] == 0


def test_a_join_has_one_page_at_a_time():
    running = join()
    with running.page(0) as page:
        assert running.page() is page
        with pytest.raises(ValueError, match=f"has a page already, at {page.address}; close that first"):
            running.page(0)
    assert page.closed and "closed" in repr(page)
    with running.page(0) as another:
        assert another is not page


def test_a_closed_page_is_gone_and_the_join_goes_on():
    running = join()
    page = page_of(running, 0, None, every=0.05)
    sample(page)
    page.close()
    page.close()
    assert not page.send({"at": 0.0, "figures": {}})
    with pytest.raises(urllib.error.URLError):
        data(page)
    assert running.push(left=batch(0), right=batch(0)) > 0
    until = time.monotonic() + 20
    while running._calls.watcher is not None and time.monotonic() < until:
        time.sleep(0.02)
    assert running._calls.watcher is None  # nobody asks any more


def test_a_page_whose_process_was_ended_does_not_disturb_the_join():
    running = join()
    with page_of(running, 0, None, every=0.02) as page:
        sample(page)
        page._popen.kill()
        page._popen.wait()
        for number in range(5):
            assert running.push(left=batch(number), right=batch(number)) > 0
            time.sleep(0.02)


def test_a_page_goes_with_its_join():
    running = join()
    page = page_of(running, 0, None, every=0.02)
    sample(page)
    del running
    end = time.monotonic() + 60
    while page._popen.poll() is None and time.monotonic() < end:
        gc.collect()  # the sampler may be looking at the join just now
        time.sleep(0.05)
    assert page._popen.poll() is not None and page.closed


def test_a_port_in_use_is_an_error_of_the_join():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        running = join()
        with pytest.raises(ValueError, match="is in use; give another"):
            running.page(taken.getsockname()[1])
        with pytest.raises(ValueError, match="give a token"):
            running.page("0.0.0.0:0")
        assert running._calls.watcher is None


def test_many_connections_do_not_keep_others_out():
    with Page("t", "embedded", 0) as page:
        port = int(page.address.rsplit(":")[-1].rstrip("/"))
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        assert status(page)[0] == 200
        for one in silent:
            one.close()


def test_what_json_has_no_word_for_is_nothing():
    assert plain({"a": [float("inf"), 1.5, (float("nan"),)], 1: "x"}) == {"a": [None, 1.5, [None]], "1": "x"}
