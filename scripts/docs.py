#!/usr/bin/env python3
"""Gathers the documents, and what they link to, into a folder that MkDocs makes a site of.

The documents lie in docs/ and link to files beside it, such as ../benchmarks/RESULTS.md; in the
folder they lie at the top, and the others at their place in the tree.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
NAV: dict[str, list[str]] = {
    "Begin": ["install", "cuda-quick-start", "run", "desktop", "opencl"],
    "Decide": ["priorities", "spec", "write-a-policy", "windows", "window-servers"],
    "Operate": [
        "systemd",
        "containers",
        "fleet",
        "fleet-scale",
        "programs",
        "threat-model",
        "proved",
        "troubleshooting",
    ],
    "Look": ["top", "web", "watch", "trace", "report", "python"],
    "Simulate": ["scenarios", "studies", "papers", "locks", "twin"],
    "Understand": [
        "glossary",
        "comparison",
        "cuda",
        "shares",
        "prediction",
        "devices",
        "architecture",
    ],
}
"""Every page of docs/ but the first; what is not named here comes last, under More."""


def place(file: Path) -> Path:
    """Where a file of the tree lies on the site."""
    relative = file.relative_to(ROOT)
    return Path(*relative.parts[1:]) if relative.parts[0] == "docs" else relative


def gather(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    pages = target / "pages"
    waiting = sorted((ROOT / "docs").glob("*.md"))
    done: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in done:
            continue
        done.add(file)
        out = pages / place(file)
        out.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".md":
            shutil.copy(file, out)
            continue

        def moved(match: re.Match[str], file: Path = file) -> str:
            to = (file.parent / match[1]).resolve()
            if not to.exists():
                sys.exit(f"{file}: the link {match[1]} leads nowhere")
            if to.is_dir():
                to = to / "README.md" if (to / "README.md").exists() else ROOT / "docs/index.md"
            waiting.append(to)
            up = [".."] * (len(place(file).parts) - 1)
            return "/".join([*up, *place(to).parts])

        out.write_text(LINK.sub(moved, file.read_text()))
    (target / "mkdocs.yml").write_text(json.dumps(config(), indent=1))


def title(name: str) -> str:
    """The first heading of a page."""
    first = (ROOT / "docs" / f"{name}.md").read_text().splitlines()[0]
    return first.removeprefix("# ").replace("`", "")


def config() -> dict[str, object]:
    """MkDocs' settings: JSON, which is YAML."""
    there = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    named = {name for names in NAV.values() for name in names}
    nav = {part: [name for name in names if name in there] for part, names in NAV.items()}
    nav["More"] = sorted(there - named)
    return {
        "site_name": "Headway",
        "docs_dir": "pages",
        "use_directory_urls": False,  # the site can be read from a disk
        "site_description": "GPU time, on time: priorities and budgets for programs on a GPU",
        "theme": {
            "name": "material",
            "font": False,  # nothing is asked of the network
            "features": ["navigation.indexes", "navigation.sections", "content.code.copy"],
            "palette": [
                {"media": f"(prefers-color-scheme: {light})", "scheme": scheme, "primary": "blue"}
                for light, scheme in (("light", "default"), ("dark", "slate"))
            ],
        },
        "plugins": ["search"],
        "markdown_extensions": [
            "tables",
            "pymdownx.superfences",
            "pymdownx.highlight",
            {"toc": {"permalink": True}},
        ],
        "nav": [
            {"Headway": "index.md"},
            *(
                {part: [{title(n): f"{n}.md"} for n in names]}
                for part, names in nav.items()
                if names
            ),
        ],
        "validation": {"nav": {"omitted_files": "ignore"}, "links": {"anchors": "warn"}},
    }


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
