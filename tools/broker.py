"""A real Kafka broker on this machine, from packages by name; for the tests, and to try things with.

    python tools/broker.py broker [--port 9092] [--folder FOLDER]      until Ctrl-C
    python tools/broker.py jars                                        fetch only; prints where they are

Needs Java and PySpark, no more: Ivy, which Spark brings along to fetch packages, fetches these too, with its own
settings. They are kept in the user's cache folder (or the one that WATERSMEET_CACHE names), 43 MB in all.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

#: The broker, with all that it needs.
BROKER = ["org.apache.kafka:kafka_2.13:4.1.0"]
#: Spark's connector, each jar by name: what it asks for itself may not be where packages are fetched from.
CONNECTOR = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
]
PATIENCE_S = 300  # for all packages
START_S = 90
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable={auto}
"""


class Unreachable(RuntimeError):
    """Packages that cannot be had here."""


# -- packages -----------------------------------------------------------------------------------------------


def jars() -> tuple[list[Path], list[Path]]:
    """Those of the broker and of the connector, fetched if they are not there yet."""
    cache = Path(os.environ.get("WATERSMEET_CACHE") or Path.home() / ".cache" / "watersmeet")
    key = hashlib.sha256(repr([BROKER, CONNECTOR]).encode()).hexdigest()[:12]
    folder = cache / f"kafka-{key}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may come at once
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache) as place:
                fetch(BROKER, True, Path(place, "jars", "broker"), Path(place, "ivy"))
                fetch(CONNECTOR, False, Path(place, "jars", "connector"), Path(place, "ivy"))
                Path(place, "jars").rename(folder)
    return sorted((folder / "broker").glob("*.jar")), sorted((folder / "connector").glob("*.jar"))


def fetch(packages: list[str], transitive: bool, into: Path, cache: Path) -> None:
    """Have Ivy put these packages, and what they need if `transitive`, into a folder."""
    into.mkdir(parents=True)
    wanted = into / "ivy.xml"
    lines = []
    for package in packages:
        group, name, version = package.split(":")
        lines.append(
            f'<dependency org="{group}" name="{name}" rev="{version}" transitive="{str(transitive).lower()}" '
            f'conf="default->default"/>'
        )
    wanted.write_text(
        '<ivy-module version="2.0"><info organisation="watersmeet" module="kafka"/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )
    command = [java(), "-cp", os.pathsep.join(map(str, ivy())), "org.apache.ivy.Main", "-warn"]
    command += ["-cache", str(cache), "-ivy", str(wanted), "-confs", "default"]
    command += ["-retrieve", f"{into}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{', '.join(packages)}: not fetched within {PATIENCE_S} s") from None
    wanted.unlink()
    if done.returncode or len(list(into.glob("*.jar"))) < len(packages):
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "not found" in line]
        raise Unreachable(f"{', '.join(packages)} cannot be fetched: {said[-1] if said else 'no answer'}")


def ivy() -> list[Path]:
    """Ivy, and what its command line needs, from Spark's own jars."""
    import pyspark

    folder = Path(pyspark.__file__).parent / "jars"
    return [*folder.glob("ivy-*.jar"), *folder.glob("commons-cli-*.jar")]


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    if not home:
        tool = Path(__file__).with_name("java.sh")
        home = subprocess.run([tool], capture_output=True, text=True, check=True).stdout.strip()
    return str(Path(home, "bin", "java"))


# -- the broker ---------------------------------------------------------------------------------------------


class Broker:
    """A broker of one node; its data are in the folder."""

    def __init__(self, folder: Path, port: int = 0, auto_create: bool = False):
        classes = os.pathsep.join(map(str, jars()[0]))
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        properties = folder / "server.properties"
        auto = str(auto_create).lower()
        properties.write_text(
            PROPERTIES.format(port=self.port, controller=free_port(), folder=folder.resolve(), auto=auto)
        )
        command = [java(), "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", classes]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._log = folder / "broker.log"
        with open(self._log, "wb") as log:
            tool = [*command, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties)]
            subprocess.run([*tool, "--ignore-formatted"], stdout=log, stderr=log, check=True)
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(properties)], stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        end = time.monotonic() + START_S
        while True:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the broker did not start:\n{self._log.read_text()[-3000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)

    def wait(self) -> int:
        return self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def free_port() -> int:
    """One that nobody gets who asks for any (below 32768), so that it is still free when it is taken, seconds later."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def main() -> None:
    parser = argparse.ArgumentParser(description="A Kafka broker to try things with.")
    parser.add_argument("what", choices=["broker", "jars"])
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--folder", type=Path, help="keep its data here (else they are thrown away)")
    given = parser.parse_args()
    try:
        _, connector = jars()
        if given.what == "jars":
            print(",".join(map(str, connector)))
            return
        with tempfile.TemporaryDirectory(prefix="watersmeet-kafka-") as place:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)
            broker = Broker(given.folder or Path(place), given.port, auto_create=True)
            print(f"a Kafka broker listens at {broker.address}; Ctrl-C ends it", flush=True)
            try:
                broker.wait()
            except KeyboardInterrupt:
                pass
            finally:
                broker.stop()
    except Unreachable as error:
        sys.exit(f"kafka: {error}")


if __name__ == "__main__":
    main()
