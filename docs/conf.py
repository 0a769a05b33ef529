"""Configuration of Sphinx: ``make docs`` builds the pages without a network."""

import os
import sys
import warnings
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import kernelgrad

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "kernelgrad"
author = "The kernelgrad developers"
copyright = author
version = release = kernelgrad.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "_site",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # the order of the gallery is an object

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
default_role = "code"

autosummary_generate = True
autosummary_generate_overwrite = True
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

SECTIONS = [
    "first_steps", "tables", "kernels", "solvers",
    "uncertainty", "few_labels", "streams", "papers",
]  # fmt: skip
# pages of the gallery show warnings without the folder of the build
warnings.formatwarning = lambda message, category, *_, **__: f"{category.__name__}: {message}\n"
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "ignore_pattern": r"make_example_data\.py",
    "subsection_order": ExplicitOrder([f"../examples/{name}" for name in SECTIONS]),
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "api/backreferences",
    "doc_module": ("kernelgrad",),
    "reference_url": {"kernelgrad": None},
    "matplotlib_animations": False,
    "thumbnail_size": (480, 320),
    "show_memory": False,
    "write_computation_times": False,  # their tables are drawn by scripts from elsewhere
    "show_signature": False,
    "remove_config_comments": True,
    "download_all_examples": False,
    "abort_on_example_error": False,
    "plot_gallery": "True" if os.environ.get("KERNELGRAD_GALLERY", "1") == "1" else "False",
}

html_theme = "pydata_sphinx_theme"
html_title = f"kernelgrad {release}"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_extra_path = ["llms.txt"]
html_css_files = ["kernelgrad.css"]
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "logo": {"text": "kernelgrad"},
}

# The build of a published site names its address, and may use the network: it links to the
# pages of other packages and lists the versions in its _static/switcher.json.
if site := os.environ.get("KERNELGRAD_SITE"):
    html_baseurl = site
    intersphinx_mapping = {
        name: (f"https://{address}/", None)
        for name, address in {
            "python": "docs.python.org/3",
            "numpy": "numpy.org/doc/stable",
            "scipy": "docs.scipy.org/doc/scipy",
            "sklearn": "scikit-learn.org/stable",
            "pandas": "pandas.pydata.org/docs",
        }.items()
    }
    html_theme_options |= {
        "switcher": {"json_url": f"{site}/_static/switcher.json", "version_match": release},
        "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
        "check_switcher": False,
    }
