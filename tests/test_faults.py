"""tools/plant_faults.py: what it would plant is sound, stays the same by seed, and is where tests look."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from fault_parts import PARTS  # noqa: E402
from faults import drawn, faults_in  # noqa: E402

SOURCE = '''
"""Text."""
LIMIT = 1

def settled(rows: "int > 0", other) -> int:
    """Text with a < b."""
    assert rows < 5, "rows < 5"
    if not rows:
        raise ValueError("left")
    total = 0
    for row in range(rows):
        if row <= 2 and other(row) in ("left",):
            total += min(row,
                         LIMIT)
    return total - 1 if rows is None else total
'''
PLANTED = [
    "if rows:", "if True:", "if False:", "if row < 2 and", "if row <= 2 or other", "if row <= 3 and",
    "and row in (", "not in ('left'", "('right',)", "pass", "total -= min(", "max(row,", "total + 1 if", "total - 2 if",
    "rows is not None", "total = 1",
]  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "one.py").write_text(SOURCE)
    return tmp_path


def test_each_operator_finds_its_places_and_nothing_else(tree):
    found = faults_in(tree, "one.py")
    changed = [fault.planted(SOURCE) for fault in found]
    assert len(set(changed)) == len(changed) and SOURCE not in changed
    for text in PLANTED:
        assert any(text.replace("'", '"') in planted.replace("'", '"') for planted in changed), text
    for planted in changed:
        ast.parse(planted)
        for kept in ('"""Text."""', "LIMIT = 1", '"int > 0"', "a < b", 'assert rows < 5, "rows < 5"', '("left")\n'):
            assert kept in planted
        assert len(planted.splitlines()) == len(SOURCE.splitlines())


def test_an_id_does_not_change_with_other_lines(tree):
    before = faults_in(tree, "one.py")
    (tree / "one.py").write_text("import os\n\n" + SOURCE.replace("total = 0", "total = sum([])"))
    after = {fault.id for fault in faults_in(tree, "one.py")}
    assert len(after) > 10 and after == {fault.id for fault in before if fault.text != "total = 0"}


def test_a_seed_draws_the_same_faults_and_another_seed_others(tree):
    one, again, another = (drawn(tree, ["one.py"], 6, seed) for seed in (1, 1, 2))
    assert one == again != another and len(one) == 6
    left = drawn(tree, ["one.py"], 99, 1, without={one[0].id})
    assert one[0] not in left and len(left) == len(faults_in(tree, "one.py")) - 1


@pytest.mark.parametrize("part", PARTS)
def test_parts_have_files_with_faults_and_tests(part):
    assert all((ROOT / test.split("::")[0]).exists() for test in PARTS[part].tests)
    assert len({fault.id for file in PARTS[part].files for fault in faults_in(ROOT, file)}) >= 5
