"""The page about topics compares tools, and names cases for other tools."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLUMNS = 5
ENGLISH, CHINESE = "docs/topics.md", "docs/zh/topics.md"
COMPARISON = {ENGLISH: "Lists, streams, queues, topics", CHINESE: "列表、流、队列、主题"}
GUIDANCE = {ENGLISH: "When one Redis is enough", CHINESE: "何时一台 Redis 足够"}
COMPARED = {
    ENGLISH: (
        "order", "duplicates of the producer", "duplicates at the consumer", "a consumer that crashes", "ack",
        "messages in flight", "blocking read", "several consumers share the work", "each message to several parties",
        "read again", "delay", "retry with backoff", "dead letters, redrive", "memory after the ack",
        "cost on the server",
    ),
    CHINESE: (
        "顺序", "生产者重复发送", "消费者重复收到", "消费者崩溃", "确认", "处理中的消息", "阻塞读取", "多个消费者分担",
        "一条消息给多方", "重读", "延迟", "带退避的重试", "死信、死信重投", "确认之后的内存", "服务器上的开销",
    ),
}  # fmt: skip


def table_of(page: str, heading: str) -> list[list[str]]:
    """Read the rows of the first table below a heading, without the line of dashes."""
    section = (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in rows if set("".join(row)) != {"-"}]


@pytest.mark.parametrize("page", COMPARED)
def test_lists_streams_queues_and_topics_are_compared(page: str) -> None:
    head, *rows = table_of(page, COMPARISON[page])

    assert len(head) == COLUMNS
    assert [row for row in rows if len(row) != COLUMNS] == []
    by_name = {row[0]: row[1:] for row in rows}
    assert [name for name in COMPARED[page] if not all(by_name.get(name, [""]))] == []


def test_both_languages_compare_the_same_number_of_things() -> None:
    english, chinese = (table_of(page, heading) for page, heading in COMPARISON.items())

    assert len(english) == len(chinese) > len(COMPARED[ENGLISH])


@pytest.mark.parametrize("page", GUIDANCE)
def test_the_page_names_cases_for_other_tools(page: str) -> None:
    _, *rows = table_of(page, GUIDANCE[page])
    better = [row[0] for row in rows if row[1]]

    assert any(name.startswith("Kafka") for name in better)
    assert "RabbitMQ" in better
    assert any("Duly" in name for name in better)
