"""Commands as forks: new to the system, and without anything of their parent but its modules.

The parent is a process of its own, since that of the tests has threads, beside which there are no forks.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.wait import DEADLINE_S

BEGIN = """
import asyncio, os, signal, sys, threading
from kafkalite.cli.local_cluster.command_process import CommandStarter

def story(run, tell):
    async def told():
        await tell(CommandStarter(run))
    asyncio.run(told())

async def lines(process):
    return (await process.stdout.read()).decode().split()
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script], capture_output=True, text=True, timeout=DEADLINE_S, env=environment
    )
    assert "Error" not in done.stderr, done.stderr
    return done


def test_a_fork_has_the_modules_its_arguments_and_a_session_of_its_own() -> None:
    done = run(
        """
parent = os.getpid()
def command(arguments):
    print(*arguments, os.getppid() == parent, os.getsid(0) == os.getpid(), "decimal" in sys.modules)
    print(*(name for name in os.environ if name.startswith(("KAFKA_", "KEPT"))), open("/proc/self/comm").read())
    return 7
def modules():
    import decimal
async def tell(commands):
    process = await commands.start(["serve", "--port"], "broker-1", (), modules)
    print(*await lines(process), await process.wait(), process.returncode, process.pid != parent)
story(command, tell)
""",
        KAFKA_LISTENERS="PLAINTEXT://:1",
        KEPT="1",
    )
    assert done.stdout.split() == ["serve", "--port", "True", "True", "True", "KEPT", "broker-1", "7", "7", "True"]


def test_a_fork_runs_an_event_loop_and_gets_its_own_signals() -> None:
    done = run("""
def command(arguments):
    async def serve():
        stopped = asyncio.Event()
        if arguments:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        print("ready", flush=True)
        await stopped.wait()
        return 3
    return asyncio.run(serve())
async def tell(commands):
    noticed = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, noticed.append, number)
    for arguments, number in ([], signal.SIGTERM), (["handled"], signal.SIGTERM), (["handled"], signal.SIGHUP):
        process = await commands.start(arguments, "it", (), lambda: None)
        await process.stdout.readline()
        process.send_signal(number)
        print(await process.wait())
    process.kill()  # it has ended
    print(noticed)
story(command, tell)
""")
    assert done.stdout.split() == ["-15", "3", "-1", "[]"]


def test_a_fork_holds_no_descriptor_that_it_was_not_given() -> None:
    done = run("""
def command(arguments):
    print("ready", flush=True)
    return len(os.read(int(arguments[0]), 1))
async def tell(commands):
    kept, lifeline = os.pipe()
    other, others = os.pipe()
    process = await commands.start([str(kept)], "it", (kept,), lambda: None)
    await process.stdout.readline()
    os.close(others)
    print(os.read(other, 1))  # the end: nothing else holds it
    os.close(lifeline)
    print(await process.wait())
story(command, tell)
""")
    assert done.stdout.split() == ["b''", "0"]


def test_an_error_of_a_fork_ends_it_and_not_what_it_was_forked_from() -> None:
    done = run("""
def command(arguments):
    if arguments:
        sys.exit(2)
    raise Exception("no such thing")
async def tell(commands):
    for arguments in ([], ["exits"]):
        print(await (await commands.start(arguments, "it", (), lambda: None)).wait())
try:
    story(command, tell)
finally:
    print("finished")
""")
    assert done.stdout.split() == ["1", "2", "finished"]
    assert "no such thing" in done.stderr


def test_beside_a_thread_and_when_forks_are_renounced_a_command_is_a_new_python() -> None:
    done = run("""
def command(arguments):
    print("forked")
    return 0
async def tell(commands):
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    process = await commands.start(["version"], "it", (), lambda: None)
    print(*await lines(process), await process.wait())
    ended.set()
    thread.join()
    while len(os.listdir("/proc/self/task")) > 1:  # asyncio waits for a process in a thread, too
        await asyncio.sleep(0)
    print(*await lines(await commands.start(["version"], "it", (), lambda: None)))
    commands.renounce_forks()
    print(*await lines(await commands.start(["version"], "it", (), lambda: None)))
story(command, tell)
""")
    assert re.fullmatch(r"kafkalite \S+ 0\nforked\nkafkalite \S+\n", done.stdout), done.stdout


def test_a_start_that_is_given_up_leaves_no_process() -> None:
    done = run("""
def command(arguments):
    signal.pause()
async def tell(commands):
    for turns in range(8):
        starting = asyncio.ensure_future(commands.start([], "it", (), lambda: None))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        if not starting.cancelled():
            starting.result().kill()
    while open(f"/proc/self/task/{os.getpid()}/children").read():
        await asyncio.sleep(0)
    print("none")
story(command, tell)
""")
    assert done.stdout == "none\n"
