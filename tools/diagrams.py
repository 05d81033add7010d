"""Draw the diagrams of README and docs, in English and Chinese: `python -m tools.diagrams`.

With --check it fails when a file is stale. `make gen` writes them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.drawing import Box, Drawing

IMAGES: Final = Path(__file__).parents[1] / "docs/images"
WIDTH: Final = 900

Say = Callable[[str, str], str]
"""Takes the English and the Chinese text, and returns that of the picture's language."""


def main() -> None:
    """Write the diagrams, or check that they are up to date."""
    files = drawn()
    if "--check" in sys.argv:
        stale = [path.name for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
        if stale:
            sys.exit(f"stale: {', '.join(stale)}; run `make gen`")
        return
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


def drawn() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        folder / f"{name}.svg": draw(say).svg()
        for folder, say in ((IMAGES, _english), (IMAGES / "zh", _chinese))
        for name, draw in DIAGRAMS.items()
    }


def _english(english: str, _: str) -> str:
    return english


def _chinese(_: str, chinese: str) -> str:
    return chinese


def system(say: Say) -> Drawing:
    """Everything that runs."""
    title = say(
        "Your programs send messages to one Redis or Valkey server. Workers on any host receive them. "
        "There is no beat, no scheduler and no monitor process.",
        "程序把消息发送到一台 Redis 或 Valkey 服务器，任意主机上的 worker 接收消息；没有 beat、调度器或监控进程。",
    )
    d = Drawing(title, WIDTH, 380)
    senders = [
        d.box(
            30, 40, 190, 56, say("Web application", "Web 应用"), say("Django, FastAPI, Flask", "Django、FastAPI、Flask")
        ),
        d.box(30, 116, 190, 56, say("Script, cron, CLI", "脚本、cron、命令行"), "duly send"),
        d.box(30, 192, 190, 56, say("Other languages", "其他语言"), say("over HTTP", "通过 HTTP")),
    ]
    server = d.bar(335, 40, 230, 208, "leased")
    d.text(450, 78, "Redis / Valkey", "strong on-leased", "middle")
    contents = [
        say("queues and topics", "队列与主题"),
        say("delayed messages", "延迟消息"),
        say("schedules", "定时计划"),
        say("results", "结果"),
        say("dead letters", "死信"),
    ]
    d.texts(450, 112, contents, "small", "middle")
    d.text(450, 224, say("the only server", "唯一的服务器"), "small quiet", "middle")
    workers = [
        d.box(680, y, 190, 56, say("Worker", "Worker"), say(f"host {place}: 4 processes", f"主机 {place}：4 个进程"))
        for place, y in ((1, 40), (2, 116), (3, 192))
    ]
    for sender in senders:
        d.arrow(sender.right, (server.x, sender.right[1]))
    for worker in workers:
        d.arrow((server.x + server.width, worker.left[1]), worker.left)
    d.text(277, 60, say("send", "发送"), "small quiet", "middle")
    d.text(622, 60, say("deliver", "投递"), "small quiet", "middle")
    for x, label in ((30, "beat"), (140, say("scheduler", "调度器")), (250, say("monitor", "监控进程"))):
        d.box(x, 300, 96, 44, label, kind="absent", style="small quiet")
    d.text(188, 288, say("not needed", "无需运行"), "small quiet", "middle")
    tools = d.box(
        470,
        296,
        400,
        52,
        say("Dashboard · HTTP API · metrics · CLI", "仪表盘 · HTTP API · 指标 · 命令行"),
        say("optional, any number of them", "可选，数量不限"),
    )
    d.arrow((520, tools.y), (520, server.y + server.height))
    return d


def life(say: Say) -> Drawing:
    """The states of a message."""
    title = say(
        "A message is delayed, ready, leased and finished. Retry and defer lead back to delayed, an expired lease to "
        "ready, a rejection to dead, and a redrive from dead to ready.",
        "消息的状态：延迟、就绪、处理中、已完成。重试与推迟回到延迟，租约到期回到就绪，拒绝成为死信，重投使死信回到就绪。",
    )
    d = Drawing(title, WIDTH, 400)
    send = d.box(20, 120, 86, 52, "send()", style="mono")
    delayed = _state(d, say, 190, 120, "delayed", "延迟")
    ready = _state(d, say, 400, 120, "ready", "就绪")
    leased = _state(d, say, 625, 120, "leased", "处理中")
    parked = _state(d, say, 400, 290, "parked", "排队等待")
    _state(d, say, 625, 290, "dead", "死信")
    finished = d.box(800, 120, 85, 52, say("finished", "已完成"))

    d.arrow(send.right, delayed.left)
    d.text(148, 138, "delay=", "small quiet", "middle")
    d.arrow((63, 172), (63, 220), (415, 220), (415, 172))
    d.text(180, 213, say("without a delay", "无延迟"), "small quiet")
    d.arrow(delayed.right, ready.left)
    d.text(360, 138, say("due", "到期"), "small quiet", "middle")
    d.arrow((530, 135), (625, 135))
    d.text(577, 127, say("deliver", "投递"), "small quiet", "middle")
    d.arrow((625, 158), (530, 158))
    d.texts(577, 178, [say("release,", "放回、"), say("lease expires", "租约到期")], "small quiet", "middle")
    d.arrow((690, 120), (690, 66), (255, 66), (255, 120))
    d.text(
        472,
        56,
        say("retry (after a backoff) · defer · recycle", "重试（退避之后）· 推迟 · 重新入队（recycle）"),
        "small quiet",
        "middle",
    )
    d.arrow(leased.right, finished.left)
    d.text(777, 138, "ack", "small quiet", "middle")
    d.arrow((690, 172), (690, 290))
    d.texts(
        702,
        220,
        [
            say("reject", "拒绝"),
            say("last attempt failed", "最后一次尝试失败"),
            say("crash limit reached", "达到崩溃上限"),
        ],
    )
    d.arrow((440, 172), (440, 290))
    d.arrow((475, 290), (475, 172))
    d.texts(430, 250, [say("its key is", "同一 key"), say("in use", "被占用")], "small quiet", "end")
    d.text(485, 268, say("its turn", "轮到它"), "small quiet")
    d.arrow((625, 316), (575, 316), (575, 232), (512, 232), (512, 172))
    d.text(582, 252, say("redrive", "重投"), "small quiet")
    d.arrow(parked.left, (330, 316), style="dashed")
    d.box(
        30,
        286,
        300,
        60,
        say("cancelled, expired or purged", "取消、过期或清除"),
        say("from delayed, ready or parked; counted", "从延迟、就绪或排队等待状态；均计数"),
        kind="absent",
        style="small",
    )
    d.text(
        465,
        372,
        say("parked: due, behind an earlier message with the same key", "排队等待：已到期，前面还有同一 key 的消息"),
        "small quiet",
        "middle",
    )
    return d


def _state(d: Drawing, say: Say, x: float, y: float, english: str, chinese: str) -> Box:
    lines = [english] if say("en", "zh") == "en" else [chinese, english]
    return d.box(x, y, 130, 52, *lines, kind=english)


def crash(say: Say) -> Drawing:
    """A worker that is killed, on a time line."""
    title = say(
        "Worker A renews its lease at 10 and 20 seconds and is killed at 24. The lease expires at 50 seconds, and "
        "worker B receives the message.",
        "worker A 在第 10 秒和第 20 秒续租，第 24 秒被终止；租约在第 50 秒到期，worker B 收到消息。",
    )
    d = Drawing(title, WIDTH, 372)
    first, last, scale = 150, 870, 11.6

    def at(second: float) -> float:
        return first + second * scale

    for y, name in ((60, "Worker A"), (150, say("Lease, 30 s", "租约，30 秒")), (240, "Worker B")):
        d.text(25, y + 25, name, "strong")
        d.line(first, y + 52, last, y + 52, "dashed")
    d.box(
        at(0),
        60,
        at(24) - at(0),
        40,
        say("attempt 1, token 101", "第 1 次尝试，token 101"),
        kind="leased",
        style="small",
    )
    d.box(at(24) + 6, 60, 74, 40, "kill -9", kind="dead", style="mono")
    d.texts(
        at(33),
        52,
        [
            say("Not killed, but frozen? Its late ack carries", "没有终止，只是停顿？其迟到的确认带有"),
            say("token 101 and is refused: 101 < 102.", "token 101，会被拒绝：101 < 102。"),
        ],
    )
    d.arrow((at(55), 76), (at(55), 108), style="dashed")
    d.text(at(55) - 8, 100, "LeaseLost", "mono on-dead", "end")
    d.box(
        at(0), 150, at(24) - at(0), 40, say("renewed while A lives", "A 存活期间自动续租"), kind="leased", style="small"
    )
    d.box(
        at(24),
        150,
        at(50) - at(24),
        40,
        say("no renewal: still reserved for A", "不再续租：仍为 A 保留"),
        kind="delayed",
        style="small",
    )
    for second in (10, 20):
        d.arrow((at(second), 112), (at(second), 148))
        d.text(at(second) + 6, 134, say("renew", "续租"), "small quiet")
    d.text(at(50) + 8, 168, say("expires", "到期"), "small on-delayed")
    d.arrow((at(50), 190), (at(50), 238))
    d.text(at(50) - 8, 221, say("delivered again, crashes: 1", "重新投递，崩溃次数：1"), "small quiet", "end")
    d.box(at(50), 240, at(60) - at(50), 40, say("attempt 2, 102", "第 2 次，102"), kind="leased", style="small")
    d.text(at(60) + 6, 265, "ack", "small")
    d.line(first, 322, last, 322)
    for second in range(0, 61, 10):
        d.line(at(second), 317, at(second), 327)
        d.text(at(second), 346, say(f"{second} s", f"{second} 秒"), "small quiet", "middle")
    return d


def queue_or_topic(say: Say) -> Drawing:
    """One consumer for each message, or every group."""
    title = say(
        "A message in a queue goes to one worker. An entry of a topic goes to every consumer group.",
        "队列中的消息只投递给一个 worker；主题中的条目投递给每个消费者组，各组有自己的进度。",
    )
    d = Drawing(title, WIDTH, 372)
    d.text(35, 40, say("Queue: each message goes to one worker", "队列：每条消息只投递给一个 worker"), "strong")
    for place, number in enumerate((6, 5, 4)):
        d.box(35 + place * 48, 156, 42, 42, str(number), kind="ready")
    for place, number in enumerate((3, 2, 1)):
        y = 76 + place * 80
        d.box(270, y, 42, 42, str(number), kind="leased")
        d.text(322, y + 26, f"worker {chr(ord('A') + place)}", "small")
        d.arrow((176, 177), (268, y + 21))
    d.texts(
        35,
        320,
        [
            say("Finished messages are deleted.", "已完成的消息会删除。"),
            say("For work to be done.", "适合需要完成的工作。"),
        ],
    )
    d.line(422, 30, 422, 342, "dashed")

    d.text(450, 40, say("Topic: each entry goes to every group", "主题：每个条目投递给每个消费者组"), "strong")
    left, cell = 560, 39
    d.text(450, 95, say("stream", "流"), "small")
    for number in range(1, 9):
        d.box(left + (number - 1) * cell, 72, cell - 5, 36, str(number))
    groups = (
        ("mails", 8, say("has read everything", "已全部读取"), "leased"),
        ("revenue", 6, say("6 fails: retried here only", "6 失败：只在该组重试"), "delayed"),
        ("archive", 3, say("slow: delays no other group", "较慢：不影响其他组"), "leased"),
    )
    for place, (name, read, note, kind) in enumerate(groups):
        y = 136 + place * 58
        d.text(450, y + 17, name, "small strong")
        d.bar(left, y, read * cell - 5, 24, "leased")
        if kind == "delayed":
            d.bar(left + (read - 1) * cell, y, cell - 5, 24, kind)
        d.text(left, y + 42, note, "small quiet")
    d.texts(
        450,
        320,
        [
            say("Entries stay for a week, or as long as you set.", "条目保留一周，或按设置的时间保留。"),
            say("For events that several parts of a system need.", "适合系统多个部分都需要的事件。"),
        ],
    )
    return d


def order(say: Say) -> Drawing:
    """Keys, and a message that failed."""
    title = say(
        "One message of each key is delivered at a time. A message that failed keeps its turn; other keys do not wait.",
        "每个 key 同时只投递一条消息；失败的消息保留位置，其他 key 不受影响。",
    )
    d = Drawing(title, WIDTH, 300)
    rows = (
        ("tea", ("delayed", "parked", "parked"), say("retry in 2 s", "2 秒后重试")),
        ("cups", ("leased", "parked"), "worker A"),
        ("pots", ("leased", "parked", "parked"), "worker B"),
    )
    for place, (key, states, holder) in enumerate(rows):
        y = 35 + place * 68
        d.text(40, y + 28, f'key="{key}"', "mono")
        taken = d.box(180, y, 140, 44, holder, kind="absent" if place == 0 else "plain", style="small")
        cells = [
            d.box(390 + number * 100, y, 86, 44, f"{key} {number + 1}", kind=state, style="small")
            for number, state in enumerate(states)
        ]
        d.arrow(cells[0].left, taken.right, style="dashed" if place == 0 else "")
    d.texts(
        695,
        53,
        [
            say("tea 1 failed, and keeps", "tea 1 失败，保留位置："),
            say("its turn: 2 and 3 wait.", "2 和 3 等待。"),
        ],
    )
    d.texts(695, 121, [say("Other keys do", "其他 key"), say("not wait for it.", "不受影响。")])
    legend = (
        ("leased", say("being handled", "处理中")),
        ("delayed", say("waits for its retry", "等待重试")),
        ("parked", say("parked: waits for its turn", "排队等待：等待轮到它")),
    )
    for place, (kind, label) in enumerate(legend):
        d.bar(180 + place * 220, 250, 18, 18, kind)
        d.text(206 + place * 220, 264, label, "small quiet")
    return d


def handlers(say: Say) -> Drawing:
    """How a handler ends, and what becomes of the message."""
    title = say(
        "The state of a message after its handler returns or raises, or its process dies.",
        "处理函数返回、抛出异常或进程终止时，消息会怎样。",
    )
    fails = say("a failure: counts an attempt", "失败：消耗一次尝试")
    spends_nothing = say("no attempt is spent", "不消耗尝试次数")
    finished, delayed, dead = (
        say("finished", "已完成"),
        say("delayed", "延迟"),
        say("dead", "死信"),
    )
    rows = (
        ("return", "done", finished, say("acked", "确认")),
        (
            "return duly.Recycle(3600)",
            "done",
            finished,
            say("and back in the queue as new, in one step", "并在同一步骤中作为新消息回到队列"),
        ),
        ("raise duly.Defer(60)", "delayed", delayed, say("60 s; ", "60 秒；") + spends_nothing),
        ("raise duly.RetryIn(60)", "delayed", delayed, say("60 s; ", "60 秒；") + fails),
        ("raise ValueError(...)", "delayed", delayed, say("backoff of its retry policy; ", "按重试策略退避；") + fails),
        (
            say("... at the last attempt", "……在最后一次尝试时"),
            "dead",
            dead,
            say("with error and traceback; redrive replays it", "保留错误和调用栈，可以重投"),
        ),
        ("raise duly.Reject(reason)", "dead", dead, say("at once, with the reason", "立即，并保留原因")),
        (
            say("body does not fit the type", "消息体与类型不符"),
            "dead",
            dead,
            say("at once, before the handler runs", "立即，处理函数不会运行"),
        ),
        (
            say("the process dies", "进程终止"),
            "ready",
            say("ready", "就绪"),
            say("when the lease expires; dead at the crash limit", "租约到期之后；达到崩溃上限成为死信"),
        ),
        (
            say("the worker is stopped", "worker 被停止"),
            "ready",
            say("ready", "就绪"),
            say("if it is unfinished after the grace period; ", "宽限时间之后仍未完成时；") + spends_nothing,
        ),
    )
    d = Drawing(title, WIDTH, 52 + 48 * len(rows))
    d.text(30, 32, say("the handler, or its process", "处理函数或其进程"), "small quiet")
    d.text(330, 32, say("the message is", "消息状态"), "small quiet")
    for place, (code, kind, state, note) in enumerate(rows):
        y = 44 + place * 48
        d.text(30, y + 24, code, "mono" if code.isascii() and code.startswith(("return", "raise")) else "small")
        d.arrow((275, y + 19), (322, y + 19))
        d.box(328, y, 120, 38, state, kind=kind)
        d.text(468, y + 24, note, "small quiet")
    return d


def loss(say: Say) -> Drawing:
    """Draw the losses of each fault, by setting."""
    title = say(
        "The messages that a killed worker, a killed server, a power failure and a fail-over can lose, by setting.",
        "在各种持久化设置下，worker 被终止、服务器被终止、断电和故障切换分别可能丢失什么。",
    )
    nothing = ("leased", say("nothing", "不丢失"))
    snapshot = ("dead", say("since the last snapshot", "上次快照之后的数据"))
    second = ("delayed", say("the last 1 to 2 s", "最后 1 至 2 秒"))
    moment = ("delayed", say("the last moments", "最后的少量写入"))
    rows = (
        ("appendonly no", "", nothing, snapshot, snapshot, moment),
        ("appendonly yes", "appendfsync everysec", nothing, nothing, second, moment),
        ("appendonly yes", "appendfsync always", nothing, nothing, nothing, moment),
        (
            say("... and durable=r", "以及 durable=r"),
            say("on all r replicas", "全部 r 个副本"),
            nothing,
            nothing,
            nothing,
            nothing,
        ),
    )
    heads = (
        (say("Worker", "Worker"), "kill -9"),
        (say("Server", "服务器"), "kill -9"),
        (say("Server", "服务器"), say("power failure", "断电")),
        (say("Fail-over", "故障切换"), say("to a replica", "切换到副本")),
    )
    d = Drawing(title, WIDTH, 70 + 62 * len(rows) + 56)
    for column, lines in enumerate(heads):
        for place, line in enumerate(lines):
            d.text(293 + column * 170, 32 + 18 * place, line, "strong" if place == 0 else "small quiet", "middle")
    for row, (setting, more, *cells) in enumerate(rows):
        y = 66 + row * 62
        d.text(25, y + (22 if more else 31), setting, "mono")
        if more:
            d.text(25, y + 40, more, "mono")
        for column, (kind, label) in enumerate(cells):
            d.box(212 + column * 170, y, 162, 50, label, kind=kind, style="small")
    d.texts(
        25,
        66 + 62 * len(rows) + 18,
        [
            say(
                "Lost: confirmed messages are missing, and acked ones are delivered again. Any row:",
                "丢失：发送已确认的消息缺失，已应答的消息重新投递。任何一行：",
            ),
            say(
                "a killed worker's message is delivered again when its lease expires.",
                "被终止的 worker 所持有的消息在租约到期后重新投递。",
            ),
        ],
    )
    return d


DIAGRAMS: Final[dict[str, Callable[[Say], Drawing]]] = {
    "system": system,
    "life-of-a-message": life,
    "crash": crash,
    "queue-or-topic": queue_or_topic,
    "order-by-key": order,
    "handlers": handlers,
    "persistence": loss,
}

if __name__ == "__main__":
    main()
