"""What mkdocs calls: pages that are made when the site is built, and links that lead out of docs/."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))

import figures
import links
import methods
import reference
import study_pages

HIDDEN = {
    "index.md": {"hide": ["navigation", "toc"]},
    "results.md": {"hide": ["toc"]},
    "which-method.md": {"hide": ["toc"]},
}
"""Pages whose tables or pictures need the room."""


def on_config(config: Any) -> Any:
    """Put the generated pages into the navigation."""
    groups = [{title: [f"methods/{name}.md" for name in names]} for title, names in methods.families().items()]
    made = {
        "Methods": ["methods/index.md", *groups],
        "Reference": list(reference.INTRO),
        "Results": ["figures.md", {"Studies": [f"studies/{name}.md" for name in study_pages.names()]}],
    }
    placed = re.findall(r"[\w/-]+\.md", str(config.nav) + str(config.not_in_nav))
    docs = Path(config.docs_dir)
    made["How to"] = sorted(path.name for path in docs.glob("*.md") if path.name not in placed)  # new ones
    for entry in config.nav:
        (title,) = entry
        if title in made:
            entry[title] = [*entry[title], *made[title]]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are no files: methods, studies, figures, the reference, code that is linked to."""
    for name in study_pages.names():  # of a study with notes the page is both
        if (kept := files.get_file_from_path(f"studies/{name}.md")) is not None:
            files.remove(kept)
    made = methods.pages() | study_pages.pages() | figures.pages() | reference.pages()
    made |= {place: (links.ROOT / path).read_text(encoding="utf-8") for path, place in links.ROOT_PAGES.items()}
    written = {
        file.src_uri: Path(file.abs_src_path).read_text(encoding="utf-8")
        for file in files
        if file.src_uri.endswith(".md")
    }
    for place, text in (made | links.sources(written | made)).items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to places in the site."""
    place = page.file.src_uri
    page.meta |= HIDDEN.get(place, {})
    return markdown if place.startswith("source/") else links.relinked(markdown, place)
