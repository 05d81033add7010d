"""The README as a package index shows it: the index has none of our files, so every relative link becomes an address.

Hatch calls the hook when it writes the metadata of a build. `Source` of `[project.urls]` is where the files are.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")
PICTURES = (".png", ".svg")


class Readme(MetadataHookInterface):
    """Fills in the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Be called by Hatch with the table `[project]`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, metadata["urls"]["Source"]),
        }


def with_absolute_links(markdown: str, source: str) -> str:
    """Return the text with links to the files of the repository at `source`; pictures come as plain files."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["path"].endswith(PICTURES) else "blob"
        return f"]({source}/{kind}/HEAD/{link['path']})"

    return RELATIVE_LINK.sub(absolute, markdown)
