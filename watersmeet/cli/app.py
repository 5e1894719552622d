"""The command itself, and what all commands share: errors of users as one line, Spark that may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

app = typer.Typer(
    help="Joins of two streams over sliding windows, on any predicate.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn the library's complaints about its input into one line and exit code 2."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        fail(str(error))


@contextmanager
def spark_needed(without: str = "") -> Iterator[None]:
    """Where Spark or Java is missing, say how to get it, and what can be done without."""
    hint = f" ({without})" if without else ""
    try:
        yield
    except ImportError as error:
        fail(f"{error}{hint}")
    except RuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        fail(f"Spark needs a Java runtime, version 17 or newer: install one, or set JAVA_HOME to it{hint}")


def fail(message: str) -> NoReturn:
    typer.secho(f"error: {message}", fg=typer.colors.RED, err=True)
    raise typer.Exit(2)


def show_version(asked: bool) -> None:
    if asked:
        from watersmeet import __version__

        typer.echo(f"watersmeet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass
