"""The setup scripts behind the Makefile: what they find, and what they say when something is missing."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def java(home, version):
    """A java that answers as that version would."""
    script(home / "bin" / "java", f'printf "    java.home = {home}\\n    java.version = {version}\\n" >&2')


def python(path, *, ensurepip=True):
    """A Python 3.11 whose virtual environments have a python that does nothing."""
    script(
        path,
        f"""
        case "$*" in
            *ensurepip*) exit {0 if ensurepip else 1} ;;
            *print*) echo python3.11-venv ;;
            *--version) echo Python 3.11.2 ;;
            "-m venv"*) mkdir -p .venv/bin; : > .venv/bin/python; chmod +x .venv/bin/python ;;
        esac""",
    )


@pytest.fixture
def project(tmp_path):
    """A copy of what the scripts read."""
    shutil.copytree(ROOT / "tools", tmp_path / "project" / "tools")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / "project" / name)
    return tmp_path / "project"


@pytest.fixture
def machine(tmp_path, project):
    """Run a script as an ordinary user on a machine that has only what the test puts into bin/ and jvm/."""
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "cat", "chmod", "cut", "dirname", "mkdir", "rm", "sed", "sha256sum"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    script(tmp_path / "bin" / "id", "echo 1000")

    def run(command, **variables):
        environment = {"PATH": str(tmp_path / "bin"), "JVM_DIR": str(tmp_path / "jvm"), **variables}
        return subprocess.run([command], cwd=project, env=environment, capture_output=True, text=True)

    return run


def test_java_home_is_used_when_it_is_new_enough(machine, tmp_path):
    java(tmp_path / "mine", "21.0.2")
    java(tmp_path / "jvm" / "other", "17.0.15")
    assert machine("tools/java.sh", JAVA_HOME=str(tmp_path / "mine")).stdout.strip() == str(tmp_path / "mine")


def test_java_on_the_path_is_used_by_its_own_home(machine, tmp_path):
    java(tmp_path / "elsewhere", "17")
    (tmp_path / "bin" / "java").symlink_to(tmp_path / "elsewhere" / "bin" / "java")
    assert machine("tools/java.sh").stdout.strip() == str(tmp_path / "elsewhere")


def test_old_and_broken_java_are_passed_over(machine, tmp_path):
    java(tmp_path, "11.0.22")  # on the PATH
    script(tmp_path / "jvm" / "a-broken" / "bin" / "java", "exit 1")
    java(tmp_path / "jvm" / "b-old", "1.8.0_392")
    java(tmp_path / "jvm" / "c-good", "17.0.15")
    found = machine("tools/java.sh", JAVA_HOME=str(tmp_path / "nowhere"))
    assert found.stdout.strip() == str(tmp_path / "jvm" / "c-good")


def test_without_java_it_says_what_to_install(machine):
    found = machine("tools/java.sh")
    assert found.returncode == 1
    assert found.stdout == ""
    assert "apt install default-jre-headless" in found.stderr


def test_without_a_new_enough_python_it_says_what_to_install(machine, tmp_path):
    script(tmp_path / "bin" / "python3", "exit 1")
    found = machine("tools/venv.sh")
    assert found.returncode == 1
    assert "apt install python3 python3-venv" in found.stderr


def test_a_python_that_cannot_make_environments_names_the_package(machine, tmp_path):
    python(tmp_path / "bin" / "python3.11", ensurepip=False)  # as on Debian without python3.11-venv
    found = machine("tools/venv.sh")
    assert found.returncode == 1
    assert "apt install python3.11-venv" in found.stderr


def test_the_environment_is_set_up_once_and_again_when_the_versions_change(machine, tmp_path, project):
    python(tmp_path / "bin" / "python3")
    first = machine("tools/venv.sh")
    assert first.returncode == 0, first.stderr
    assert "virtual environment in .venv" in first.stdout
    assert machine("tools/venv.sh").stdout == ""
    with open(project / "constraints.txt", "a") as constraints:
        constraints.write("another==1.0\n")
    again = machine("tools/venv.sh").stdout
    assert "installing" in again
    assert "virtual environment in .venv" not in again
