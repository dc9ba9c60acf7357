"""The page of a server: its files and no others; the tutorial of movies, in a real browser where one is installed."""

import asyncio
import json
import re
import runpy
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sparrow import exports
from sparrow.data import DataError
from tests.exports.cases import WORDS, config, program_and_state
from tests.server.test_server import serving_of

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def test_files_of_the_page_and_no_others_are_served(tmp_path):
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    exports.export(*program_and_state(config("deepfm", tmp_path / "words.txt")), tmp_path / "export")
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("<p>hello")
    (page / "data.json").write_text("{}")

    async def ask():
        async with serving_of(tmp_path / "export", page=page) as client:
            found = []
            for path in ("/page/", "/page/data.json", "/page/%2e%2e/words.txt", "/page/none"):
                async with client.get(path) as answer:
                    found.append((answer.status, await answer.text()))
            async with client.get("/metrics") as answer:
                return found, await answer.text()

    (index, data, outside, none), metrics = asyncio.run(ask())
    assert (index, data) == ((200, "<p>hello"), (200, "{}"))
    assert (outside[0], none[0]) == (404, 404)
    assert 'path="/page"' in metrics
    assert "data.json" not in metrics
    (page / "index.html").unlink()
    with pytest.raises(DataError, match=r"has no index\.html, the page to serve"):
        asyncio.run(ask())


@pytest.mark.slow
def test_the_tutorial_of_movies(tmp_path, monkeypatch, capsys):
    """Data, two towers, export, server; the top 10 by the request of the tutorial, and the page in a browser."""
    monkeypatch.setattr(sys, "argv", ["movies.py", str(tmp_path / "movies")])
    runpy.run_path(str(ROOT / "examples" / "movies.py"), run_name="__main__")
    command = [sys.executable, "-m", "sparrow.cli", "serve", str(tmp_path / "movies" / "exported"), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--page", str(tmp_path / "movies" / "page")], stderr=subprocess.PIPE, text=True
    )
    try:
        ready = next(line for line in process.stderr if line.startswith("serving"))
        address = re.search(r"on (http://\S+) ", ready)[1]
        data = json.loads((tmp_path / "movies" / "page" / "data.json").read_text())
        tutorial = (ROOT / "docs" / "tutorials" / "recommend.md").read_text()
        (body,) = re.findall(r"-d '(.*?)'", tutorial, re.DOTALL)
        request = urllib.request.Request(f"{address}/v1/recommend", body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            (items,) = json.load(answer)["items"]
        assert len(items) == 10
        seen = data["histories"]["17"]
        liked = [data["genres"][movie] for movie in seen]
        assert sum(liked.count(data["genres"][movie]) >= 2 for movie in items) >= 8  # movies of the user's own genres
        if BROWSER is None:
            pytest.skip("no browser is installed; the server answered")
        url = f"{address}/page/?user=17"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
        shown = subprocess.run([BROWSER, *options, url], capture_output=True, text=True, timeout=300, check=True).stdout
        history, found = (re.search(rf'<ol id="{name}">(.*?)</ol>', shown)[1] for name in ("history", "found"))
        titles = re.findall(r"<li>(.*?)<span>", history)
        assert titles == [data["titles"][movie] for movie in reversed(seen)]
        recommended = re.findall(r"<li>(.*?)<span>", found)
        assert len(recommended) == 10
        assert not set(recommended) & set(titles)
        dom = subprocess.run([BROWSER, *options, f"{url}&genre=crime"], capture_output=True, text=True, timeout=300)
        of_genre = re.findall(r"<li>(.*?)<span>", re.search(r'<ol id="found">(.*?)</ol>', dom.stdout)[1])
        assert len(of_genre) == 10
        assert all(title.startswith("Crime") for title in of_genre)
    finally:
        process.terminate()
        process.wait(30)
