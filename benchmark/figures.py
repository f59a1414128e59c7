#!/usr/bin/env python3
"""figures.py [--check]: draws figures.svg, the plot of the top README, from the tables of 16 + 100 bytes in README.md.

With --check nothing is written; the exit status is 1 if figures.svg does not show the tables (the test house/Figures)."""
import html
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
TITLES = ["hash tables", "records in the order of their keys"]  # of the tables
COLUMNS = ["Get", "Set new", "Set existing"]
LABEL_WIDTH, BAR_WIDTH, GAP, ROW, BAR = 300, 170, 50, 20, 14  # pixels
HAKO, OTHER, TEXT, FAINT = "#1f6f8b", "#b8c0c8", "#24292f", "#656d76"


def read_tables():
    """The rows of both tables: (engine, is it hako's, {column: nanoseconds})."""
    groups, columns = [], None
    for line in (FOLDER / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            columns = None
        elif cells[0] == "16 + 100":
            columns = cells
            groups.append([])
        elif columns and not cells[0].startswith("---"):
            name = re.sub(r"[*`]", "", cells[0])
            values = {column: int(cell.replace(",", "")) for column, cell in zip(columns, cells) if cell.replace(",", "").isdigit()}
            groups[-1].append((name, cells[0].startswith("**"), values))
    return groups


def draw(groups):
    scale = BAR_WIDTH / max(values[column] for group in groups for _, _, values in group for column in COLUMNS if column in values)
    width = LABEL_WIDTH + len(COLUMNS) * (BAR_WIDTH + GAP)
    shapes, y = [], 58

    def text(x, y, string, color=TEXT, **attributes):
        more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
        shapes.append(f'<text x="{x}" y="{y}" fill="{color}"{more}>{html.escape(string)}</text>')

    text(10, 24, "Nanoseconds an operation: 16 + 100 bytes, random keys, one thread; shorter is faster", font_weight="bold")
    for index, column in enumerate(COLUMNS):
        text(LABEL_WIDTH + index * (BAR_WIDTH + GAP), 46, column, FAINT)
    for title, group in zip(TITLES, groups, strict=True):
        text(10, y + BAR - 2, title, FAINT)
        y += ROW
        for name, is_hako, values in group:
            text(LABEL_WIDTH - 10, y + BAR - 2, name, text_anchor="end", font_weight="bold" if is_hako else "normal")
            for index, column in enumerate(COLUMNS):
                if column not in values:
                    continue
                x, length = LABEL_WIDTH + index * (BAR_WIDTH + GAP), max(1, round(values[column] * scale))
                shapes.append(f'<rect x="{x}" y="{y}" width="{length}" height="{BAR}" fill="{HAKO if is_hako else OTHER}"/>')
                text(x + length + 5, y + BAR - 2, f"{values[column]:,}", FAINT)
            y += ROW
        y += ROW // 2
    opening = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" '
               'font-family="sans-serif" font-size="12">')
    return "\n".join([opening, f'<rect width="{width}" height="{y}" fill="#ffffff"/>', *shapes, "</svg>", ""])


picture, path = draw(read_tables()), FOLDER / "figures.svg"
if sys.argv[1:] != ["--check"]:
    path.write_text(picture)
elif path.read_text() != picture:
    sys.exit("benchmark/figures.svg does not show the tables of benchmark/README.md: run benchmark/figures.py")
