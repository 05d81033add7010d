"""Output on a terminal: the live view, progress bars and questions."""

import signal

import pytest

import duly
from tests.cli.shell import DEADLINE, Shell, given_dead
from tests.cli.terminal import Terminal
from tests.servers import Server

BARS = set("▁▂▃▄▅▆▇█")


def rate(terminal: Terminal, name: str, column: str) -> float:
    """Read a number of the live view, or 0 before it is shown."""
    head = next((line for line in terminal.lines if line.startswith("QUEUE")), "")
    row = next((line for line in terminal.lines if line.startswith(f"{name} ")), "")
    names, cells = head.split(), row.split()
    return float(cells[names.index(column)].replace(",", "")) if column in names and row else 0.0


def works_off(queue: duly.Queue) -> bool:
    queue.send_many(range(100))
    return queue.ack_many(queue.receive(100, 0)) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_live_view_counts_and_restores_the_screen(shell: Shell, app: duly.Duly, how: signal.Signals) -> None:
    queue = app.queue("orders")
    queue.send_many(range(7))

    with Terminal(shell, "stats", "--watch", "--interval", "100ms") as terminal:
        terminal.wait_until(lambda: rate(terminal, "orders", "READY") == 7, "7 are ready")
        queue.send_many(range(1000))
        terminal.wait_until(lambda: rate(terminal, "orders", "READY") == 1007, "1,007 are ready")
        widest = max(map(len, terminal.lines))
        has_bars = bool(BARS & set(terminal.text))
        if how == signal.SIGINT:
            terminal.process.sendintr()
        else:
            terminal.process.kill(how)
        status = terminal.wait_end()

    assert status == 0
    assert widest <= 80
    assert not has_bars
    assert terminal.raw.index(b"\x1b[?1049h") < terminal.raw.index(b"\x1b[?1049l")  # alternate screen, and back
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")  # the cursor is shown again
    assert b"Traceback" not in terminal.raw


def test_a_wide_live_view_has_rates_and_bars(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    queue.send("x")

    with Terminal(shell, "stats", "--watch", "--interval", "200ms", columns=120, rows=30) as terminal:
        terminal.wait_for("orders")
        terminal.wait_until(lambda: works_off(queue) and rate(terminal, "orders", "OUT/S") > 0, "there is a rate")
        terminal.wait_until(lambda: "█" in terminal.text, "there are bars")
        terminal.process.sendintr()
        status = terminal.wait_end()

    assert status == 0
    assert max(map(len, terminal.lines)) <= 120


def test_queues_that_do_not_fit_are_summed_up(shell: Shell, app: duly.Duly) -> None:
    for number in range(30):
        app.queue(f"queue-{number:02}").send_many(range(number + 1))

    with Terminal(shell, "stats", "--watch", "--interval", "100ms") as terminal:
        terminal.wait_for("Ctrl-C exits")
        shown = [line for line in terminal.lines if line.startswith("queue-")]
        *_, total, foot = terminal.lines
        terminal.process.sendintr()
        terminal.wait_end()

    assert 10 <= len(shown) < 24
    assert shown[-1].startswith("queue-29 ")
    assert total.split()[:4] == ["30", "in", "all", "465"]
    assert foot == f"{30 - len(shown)} more are not shown, but are in the sum. Ctrl-C exits"


def test_a_lost_server_ends_the_view_gracefully(shell: Shell) -> None:
    with Terminal(shell, "stats", "--watch", "--url", "redis://127.0.0.1:1/0") as terminal:
        status = terminal.wait_end()

    assert status == 1
    assert "Check that the server runs" in terminal.raw.decode()
    assert b"Traceback" not in terminal.raw


def test_purge_asks_at_a_terminal_and_no_keeps_everything(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    queue.send_many(range(3))

    with Terminal(shell, "purge", "orders") as terminal:
        terminal.wait_for("Purge 3 live, dead and finished message(s) of orders permanently? [y/N]:")
        terminal.process.sendline("n")
        assert terminal.wait_end() == 1
    assert queue.stats().ready == 3

    with Terminal(shell, "purge", "orders") as terminal:
        terminal.wait_for("[y/N]:")
        terminal.process.sendline("y")
        assert terminal.wait_end() == 0
    assert queue.stats().ready == 0
    assert "3 purged from orders" in terminal.text


@pytest.mark.parametrize("words", ["purge orders", "delete orders"])
def test_ctrl_c_at_a_question_stops_and_no_aborts(shell: Shell, app: duly.Duly, words: str) -> None:
    queue = app.queue("orders")
    queue.send("x")

    with Terminal(shell, *words.split()) as terminal:
        terminal.wait_for("[y/N]:")
        terminal.process.sendintr()
        status = terminal.wait_end()

    assert status == 130
    assert b"Traceback" not in terminal.raw
    assert queue.stats().ready == 1


def test_a_terminal_that_cannot_move_the_cursor_gets_a_table_each_time(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send("x")

    with Terminal(shell, "stats", "--watch", "--interval", "100ms", TERM="dumb") as terminal:
        terminal.wait_until(lambda: terminal.raw.count(b"orders") > 1, "the table is there twice")
        terminal.process.sendintr()
        status = terminal.wait_end()

    assert status == 0
    assert b"\x1b" not in terminal.raw


@pytest.mark.fault
def test_notes_during_the_live_view_go_to_standard_error(shell: Shell) -> None:
    said = shell.place / "said"
    with Server("valkey") as own:
        with duly.Duly(own.url, namespace=shell.namespace) as app:
            app.queue("orders").send("x")
        with Terminal(shell, "stats", "--watch", "--interval", "100ms", errors=said, DULY_URL=own.url) as terminal:
            terminal.wait_for("orders")
            own.kill9()
            terminal.wait_until(lambda: "does not answer" in said.read_text(), "the file reports it")
            terminal.process.sendintr()
            terminal.wait_end()

    assert b"does not answer" not in terminal.raw


@pytest.mark.parametrize("words", ["purge orders --yes", "dead redrive orders", "audit orders"])
def test_long_work_shows_its_progress(shell: Shell, app: duly.Duly, words: str) -> None:
    queue = app.queue("orders")
    given_dead(queue, "dead")
    queue.send_many(range(5000))

    with Terminal(shell, *words.split()) as terminal:
        status = terminal.wait_end()

    title = {"purge": "purging", "dead": "redriving", "audit": "auditing orders"}[words.split(maxsplit=1)[0]]
    assert status == 0
    assert title in terminal.raw.decode()
    assert title not in terminal.text  # it is removed at the end
    assert max(map(len, terminal.lines)) <= 80


def test_send_without_a_body_at_a_terminal_explains_how(shell: Shell) -> None:
    with Terminal(shell, "send", "orders") as terminal:
        status = terminal.wait_end()

    assert status == 2
    assert "there is no body: give it as an argument, as @file, or on standard input" in " ".join(terminal.lines)


def test_a_pipe_with_colours_is_not_a_terminal(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    queue.send_many(range(5000))

    with shell.start("stats", "--watch", "--interval", "100ms", FORCE_COLOR="1") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
    purged = shell.run("purge", "orders", "--yes", FORCE_COLOR="1")

    assert "\x1b[?1049h" not in "".join(lines)
    assert any("orders" in line for line in lines)
    assert (purged.status, purged.err) == (0, "")
