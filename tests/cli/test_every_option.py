"""Each command and each option is used in a test of this folder, or of the package that the command runs."""

from pathlib import Path

import pytest

from tests.cli.commands import ALL, ROOT

FOLDERS = ("cli", "embedded", "worker", "doctor", "acl")
OF_TYPER = {"--install-completion", "--help"}


@pytest.fixture(scope="module")
def sources() -> str:
    here = Path(__file__).resolve()
    folders = (here.parent.parent / name for name in FOLDERS)
    return "\n".join(file.read_text() for folder in folders for file in folder.glob("*.py") if file != here)


def test_every_option_is_used_in_a_test(sources: str) -> None:
    options = {name for command in [ROOT, *ALL.values()] for each in command.params for name in each.opts}

    unused = sorted(name for name in options - OF_TYPER if name.startswith("--") and name not in sources)

    assert unused == []


def test_every_command_is_run_in_a_test(sources: str) -> None:
    def is_run(words: tuple[str, ...]) -> bool:
        line, listed = " ".join(words), '", "'.join(words)
        # The tests of the embedded server have a function for `duly server`.
        return any(text in sources for text in (f'"{line}', f'"{listed}"', f'duly("{words[-1]}"'))

    assert [words for words in ALL if not is_run(words)] == []
