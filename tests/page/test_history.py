"""The last hour in few points."""

import pytest

from watersmeet.page.serving.history import History

SERIES = {"rate": "mean", "worst": "max", "level": "last"}


def test_recent_samples_are_kept_as_they_are():
    history = History(SERIES)
    for at in range(100):
        history.add(float(at), {"rate": at, "worst": 2 * at, "level": 3 * at})
    assert history.points() == [[float(at), at, 2 * at, 3 * at] for at in range(100)]
    assert history.points(since=97.0) == [[98.0, 98, 196, 294], [99.0, 99, 198, 297]]
    assert history.points(since=99.0) == []


def test_older_samples_become_one_for_each_slot():
    history = History(SERIES, kept=100, fine=10, slot=5)
    for at in range(31):
        history.add(float(at), {"rate": at, "worst": -at, "level": at})
    # 0..4, 5..9, 10..14 and 15..19 are slots; 20, which is just old enough, begins another
    assert history.points()[:5] == [
        [4.0, 2.0, 0, 4], [9.0, 7.0, -5, 9], [14.0, 12.0, -10, 14], [19.0, 17.0, -15, 19], [20.0, 20, -20, 20],
    ]  # fmt: skip
    assert [point[0] for point in history.points()[5:]] == [float(at) for at in range(21, 31)]


def test_what_is_not_known_does_not_count():
    history = History(SERIES, kept=100, fine=0, slot=10)
    for at, rate in enumerate([None, 4, None, 8]):
        history.add(float(at), {"rate": rate, "worst": rate})
    history.add(10.0, {})
    assert history.points() == [[3.0, 6.0, 8, None], [10.0, None, None, None]]


def test_two_hours_leave_an_hour_in_few_points():
    history = History(SERIES)
    for at in range(7200):
        history.add(float(at), {"rate": 1.0, "worst": at, "level": at})
    points = history.points()
    assert 600 < len(points) < 650
    assert 7199 - 3600 <= points[0][0] <= 7199 - 3580
    assert [point[0] for point in points] == sorted({point[0] for point in points})
    assert all(point[1] == 1.0 for point in points)
    assert [point[2] for point in points[-300:]] == list(range(6900, 7200))


@pytest.mark.parametrize("every", [0.1, 7.0, 60.0])
def test_samples_may_come_at_any_pace(every):
    history = History(SERIES)
    for number in range(int(5000 / every)):
        history.add(number * every, {"level": number})
    levels = [point[3] for point in history.points()]
    assert levels == sorted(set(levels)) and levels[-1] == int(5000 / every) - 1
    assert len(levels) <= 300 / every + 332
