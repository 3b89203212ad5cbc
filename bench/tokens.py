"""The error of the token estimate compared with real vocabularies, for many languages, Markdown and code.

The vocabularies (cl100k, o200k, tekken) and the texts (translations of Django, documentation and code of installed
packages) come from packages in a separate environment. The error of bytes/4 is reported for comparison.
"""

from __future__ import annotations

import json
import random
import re
import sysconfig
import tempfile
from pathlib import Path

from bench.lib.peers import PeerMissing, peer_python, run_peer
from bench.lib.report import arguments, finish, log, percentile
from coterie.llm.tokens import CL100K, O200K, TEKKEN, TokenWeights, estimate_tokens

_FAMILIES = {"cl100k": CL100K, "o200k": O200K, "tekken": TEKKEN}
_PEERS = ["litellm", "mistral-common", "django", "tiktoken", "regex"]

_COUNT = r"""
import base64, glob, json, re, sys, sysconfig
from pathlib import Path
import tiktoken
from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS
site = Path(sysconfig.get_paths()["purelib"])

def ranks(name):
    lines = (site / "litellm/litellm_core_utils/tokenizers" / name).read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}

def pattern(name, source=(site / "tiktoken_ext/openai_public.py").read_text()):
    import tiktoken_ext.openai_public as public
    public.load_tiktoken_bpe = lambda *args, **kwargs: {}
    return ENCODING_CONSTRUCTORS[name]()["pat_str"]

tekken = json.loads((site / "mistral_common/data/tekken_240911.json").read_text())
size = tekken["config"]["default_vocab_size"] - tekken["config"]["default_num_special_tokens"]
tekken_ranks = {base64.b64decode(word["token_bytes"]): word["rank"] for word in tekken["vocab"][:size]}
encodings = {
    "cl100k": (pattern("cl100k_base"), ranks("9b5ad71b2ce5302211f9c61530b329a4922fc6a4")),
    "o200k": (pattern("o200k_base"), ranks("fb374d419588a4632f3f557e76b4b70aebbca790")),
    "tekken": (tekken["config"]["pattern"], tekken_ranks),
}
texts = json.loads(Path(sys.argv[1]).read_text())
for language in sorted(path.name for path in (site / "django/conf/locale").iterdir() if path.is_dir()):
    said = []
    for file in glob.glob(f"{site}/django/**/locale/{language}/LC_MESSAGES/django.po", recursive=True):
        for found in re.finditer(r'^msgstr(?:\[\d\])? ((?:"(?:[^"\\]|\\.)*"\n?)+)', Path(file).read_text(), re.M):
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found[1])).replace("\\n", " ").replace('\\"', '"')
            text = " ".join(re.sub(r"%\(\w+\)[sd]|%[sd]|\{[^}]*\}|<[^>]*>", "", text).split())
            if len(text) > 25 or (len(text) > 10 and len(text.encode()) > 2.5 * len(text)):
                said.append(text)
    texts += [[language, " ".join(said[n:n + 5])] for n in range(0, min(len(said), int(sys.argv[2])) - 5, 5)]
made = {
    name: tiktoken.Encoding(name, pat_str=split, mergeable_ranks=words, special_tokens={})
    for name, (split, words) in encodings.items()
}
counted = [[kind, text, {name: len(one.encode_ordinary(text)) for name, one in made.items()}] for kind, text in texts]
Path(sys.argv[1]).write_text(json.dumps(counted))
print(json.dumps(len(counted)))
"""


def main() -> None:
    options = arguments(__doc__).parse_args()
    log("Counting with the real vocabularies ...")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        file.write_text(json.dumps(_local_texts(60 if options.quick else 300)))
        try:
            python = peer_python("vocabularies", ["requests"], _PEERS)
            log(f"{run_peer(python, _COUNT, str(file), '40' if options.quick else '150')} paragraphs")
        except PeerMissing as missing:
            finish({"mean_error": None, "p95_error": None, "reason": str(missing)})
            return
        counted = json.loads(file.read_text())
    figures = {name: _errors(counted, name, weights) for name, weights in _FAMILIES.items()}
    for name, found in figures.items():
        log(f"{name}: {found['mean']:.1%} on average, {found['english_and_code']:.1%} for English, Markdown and code")
    finish(
        {
            "mean_error": {name: found["mean"] for name, found in figures.items()},
            "p95_error": {name: found["p95"] for name, found in figures.items()},
            "english_and_code_error": {name: found["english_and_code"] for name, found in figures.items()},
            "bytes_4_mean_error": {name: found["bytes_4"] for name, found in figures.items()},
            "paragraphs": len(counted),
        }
    )


def _errors(counted: list[tuple[str, str, dict[str, int]]], name: str, weights: TokenWeights) -> dict[str, float]:
    errors, plain, naive = [], [], []
    for kind, text, real in counted:
        if real[name]:
            errors.append(abs(estimate_tokens(text, weights) - real[name]) / real[name])
            naive.append(abs(len(text.encode()) / 4 - real[name]) / real[name])
            if kind in ("english", "markdown", "code"):
                plain.append(errors[-1])
    means = {"mean": errors, "english_and_code": plain, "bytes_4": naive}
    return {"p95": round(percentile(errors, 0.95), 3)} | {
        key: round(sum(values) / len(values), 3) for key, values in means.items()
    }


def _local_texts(most: int) -> list[tuple[str, str]]:
    """English, Markdown and code from the packages in this environment."""
    site, pick = Path(sysconfig.get_paths()["purelib"]), random.Random(1)
    texts: list[tuple[str, str]] = []
    for kind, pattern in (("markdown", "*.dist-info/METADATA"), ("code", "pydantic*/**/*.py")):
        files = sorted(site.glob(pattern))
        for file in pick.sample(files, min(most, len(files))):
            text = file.read_text(encoding="utf-8", errors="ignore")
            if len(text) > 1000:
                start = pick.randrange(len(text) - 900)
                texts.append((kind, text[start : start + 900]))
            if kind == "code":
                docstrings = [" ".join(found.split()) for found in re.findall(r'"""(.*?)"""', text, re.DOTALL)]
                texts += [("english", one) for one in docstrings if len(one) > 300][:2]
    return texts


if __name__ == "__main__":
    main()
