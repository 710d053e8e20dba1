"""Counts the lines of code below a folder: those that are not blank, not only a comment, and not of a docstring.

`python scripts/lines.py [folder]`; without a folder it counts `src`.
"""

import ast
import sys
from pathlib import Path


def docstring_lines(tree: ast.Module) -> set[int]:
    """The numbers of all lines that belong to docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            found.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found


def lines_of_code(text: str) -> int:
    """Count the lines of one file that are code."""
    documented = docstring_lines(ast.parse(text))
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return sum(1 for number, line in lines if line and not line.startswith("#") and number not in documented)


if __name__ == "__main__":
    files = sorted(Path(sys.argv[1] if len(sys.argv) > 1 else "src").rglob("*.py"))
    print(f"{sum(lines_of_code(file.read_text(encoding='utf-8')) for file in files)} lines in {len(files)} files")
