"""The page of the demo: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import io
import os
import platform
from collections.abc import Sequence
from html import escape
from pathlib import Path

import kernelgrad

from .work import Study

_STYLE = """
:root { color-scheme: light dark; --ours: #eef5fa; --line: #ddd; --won: #00664b;
  --lost: #b03a00; --even: #555; }
@media (prefers-color-scheme: dark) {
  :root { --ours: #1d3340; --line: #444; --won: #5fd3ae; --lost: #ff9c66; --even: #aaa; }
  img { border-radius: 6px; filter: brightness(.88); }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 0 auto;
  padding: 1rem; }
h1 { margin-bottom: 0; }
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal;
  overflow-wrap: anywhere; }
tr.ours { font-weight: bold; background: var(--ours); }
.won { color: var(--won); } .lost { color: var(--lost); font-weight: bold; }
.even { color: var(--even); }
@media (max-width: 480px) { th, td { padding: .3rem .25rem; font-size: .85rem; } }
.pictures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(440px, 100%), 1fr)); }
figure { margin: 0; } img { width: 100%; height: auto; } figcaption { font-size: .9rem; }
"""
_VERDICTS = {"": "", "won": "we win", "lost": "we lose", "even": "even"}


def write_page(folder: Path, studies: Sequence[Study], seconds: float) -> Path:
    """Write ``demo.html`` and its pictures, and return its path."""
    counts = {word: 0 for word in ("won", "lost", "even")}
    for study in studies:
        for verdict in study.verdicts()[1:]:
            counts[verdict] += 1
    body = "\n".join(_section(folder, study) for study in studies)
    page = folder / "demo.html"
    page.write_text(
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>kernelgrad: five small studies</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>kernelgrad: five small studies</h1>
<p>Version {kernelgrad.__version__}, measured here in {seconds:.0f} s: {os.cpu_count()}
processors, {escape(platform.system())} on {escape(platform.machine())}, Python
{platform.python_version()}.
The same training rows for all methods; seconds are those of fits, without compilation and
loading. Of {sum(counts.values())} comparisons kernelgrad has the smaller test error in
<span class="won">{counts["won"]}</span>, the larger in
<span class="lost">{counts["lost"]}</span>, and in
<span class="even">{counts["even"]}</span> the difference is below two standard errors of
the test rows, or too small to speak of. The manual says more: <code>make docs</code> builds
it into <code>docs/_build/index.html</code>.</p>
{body}
</body>
</html>
""",
        encoding="utf-8",
    )
    return page


def _section(folder: Path, study: Study) -> str:
    """Return a study as HTML."""
    square = study.results[0].square
    rows = []
    for result, verdict in zip(study.results, study.verdicts(), strict=True):
        ours = ' class="ours"' if result is study.results[0] else ""
        word = f'<span class="{verdict}">{_VERDICTS[verdict]}</span>'
        rows.append(
            f"<tr{ours}><td>{escape(result.name)}</td>"
            f"<td>{f'{result.error:.4f}' if square else f'{100 * result.error:.2f} %'}</td>"
            f"<td>{result.seconds:.2f}</td><td>{word}</td></tr>"
        )
    pictures = []
    for number, (caption, figure) in enumerate(study.figures.items(), 1):
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=120)
        (folder / f"{study.name}_{number}.png").write_bytes(stream.getvalue())
        data = base64.b64encode(stream.getvalue()).decode()
        text = escape(caption)
        pictures.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{text}">'
            f"<figcaption>{text}</figcaption></figure>"
        )
    error = "RMSE" if square else "wrong"
    loads = "identical" if study.same_after_load else "DIFFERENT"
    return f"""<section>
<h2>{escape(study.title)}</h2>
<p>{escape(study.text)}</p>
<table>
<tr><th>method</th><th>{error}</th><th>seconds</th><th></th></tr>
{"".join(rows)}
</table>
<div class="pictures">
{"".join(pictures)}
</div>
<p>The model is in <code>{escape(study.name)}.kgm</code>; loaded again its predictions are
{loads}.</p>
</section>"""
