"""The link of the pages to the repository that they were built from."""

import runpy
from pathlib import Path

import pytest

STEP = Path(__file__).parents[1] / "docs" / "repository.py"


@pytest.fixture
def step():
    return runpy.run_path(str(STEP))


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("https://host.org/group/jitney.git", "https://host.org/group/jitney"),
        ("https://host.org/group/jitney/", "https://host.org/group/jitney"),
        ("https://me:secret@host.org/group/jitney.git", "https://host.org/group/jitney"),
        ("git@host.org:group/jitney.git", "https://host.org/group/jitney"),
        ("host.org:group/sub/jitney", "https://host.org/group/sub/jitney"),
        ("ssh://git@host.org:2222/group/jitney.git", "https://host.org/group/jitney"),
        ("git://host.org/jitney", "https://host.org/jitney"),
        ("/srv/git/jitney.git", None),
        ("../jitney", None),
        ("C:/code/jitney", None),
        ("file:///srv/git/jitney", None),
        ("", None),
    ],
)
def test_where_a_copy_was_cloned_from_is_a_page_of_the_web(step, address, page):
    """Without the name and the password of whoever cloned it; a folder is none."""
    assert step["of_web"](address) == page


def test_the_site_links_where_it_was_cloned_from(step, monkeypatch):
    """The variables that the site's configuration reads."""
    monkeypatch.setenv("JITNEY_REPOSITORY", "https://host.org/group/jitney.git")
    assert step["variables"]() == {
        "JITNEY_REPOSITORY": "https://host.org/group/jitney",
        "JITNEY_REPOSITORY_NAME": "group/jitney",
    }


def test_a_copy_of_a_folder_has_no_link(step, monkeypatch):
    """Rather than one that leads nowhere."""
    monkeypatch.setenv("JITNEY_REPOSITORY", "/srv/git/jitney.git")
    assert step["variables"]() == {}
