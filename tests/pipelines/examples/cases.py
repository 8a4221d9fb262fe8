"""The inputs and expected outputs of the examples, for the cluster in memory and for a real one."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.pipelines import examples

DATA = Path(__file__).with_name("data")
HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * 60 * 60 * 1000
MONDAY_MS = 1_700_438_400_000
TEXT = (DATA / "hamlet.txt").read_text()
READINGS = [("a", 20.0, 1.0), ("b", 18.5, 20.0), ("a", 21.5, 59.0), ("a", 19.0, 61.0), ("b", 17.0, 130.0)]
READING = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "sensor", "type": "string"}, {"name": "degrees", "type": "double"}],
}


@dataclass(frozen=True)
class In:
    """A message to read."""

    value: bytes
    timestamp_ms: int = MONDAY_MS


@dataclass(frozen=True)
class Case:
    """An example with its input. In arguments, `{data}` is the folder of files, `{out}` an empty one, `{t}` a prefix.

    Topics are without the prefix. Output is compared without its order: printed texts, and decoded values.
    """

    arguments: str
    topics: Mapping[str, Sequence[In]] = field(default_factory=dict)
    printed: Counter[str] | None = None
    written: Mapping[str, Counter[str]] = field(default_factory=dict)
    """Topic -> values."""
    decode: Callable[[bytes], Any] = json.loads
    last: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Topic -> key -> the value of its last message."""
    files: Counter[str] | None = None
    """Rows of the Parquet files in `{out}`."""
    bounded: bool = True
    """Whether the job ends by itself on a real cluster."""


def program(name: str) -> Path:
    """Returns the path of an example."""
    return Path(examples.__file__).with_name(f"{name}.py")


def readme_commands() -> Mapping[str, Sequence[str]]:
    """Returns the arguments of `tailrace run` in each command of the examples' README, by the name of the example."""
    prompt = "$ tailrace run "
    lines = program("README").with_suffix(".md").read_text().splitlines()
    commands = [shlex.split(line.removeprefix(prompt)) for line in lines if line.startswith(prompt)]
    return {Path(command[0]).stem: command for command in commands}


def _json(**values: Any) -> In:
    return In(json.dumps(values).encode())


LATE_READING = _json(sensor="a", degrees=25.0, at=MONDAY_MS / 1000 + 30)


def shown(value: Any) -> str:
    """Returns a decoded value in hashable form."""
    return json.dumps(value, sort_keys=True)


def counted(*values: Any) -> Counter[str]:
    """Counts expected values in decoded form."""
    return Counter(map(shown, values))


def single_object(value: dict[str, Any]) -> bytes:
    """Encodes with Avro's single-object encoding."""
    schema = fastavro.parse_schema(READING)
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    out = BytesIO()
    out.write(b"\xc3\x01" + bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")))
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def from_single_object(data: bytes) -> Any:
    """Decodes what follows the fingerprint."""
    assert data[:2] == b"\xc3\x01"
    return fastavro.schemaless_reader(BytesIO(data[10:]), fastavro.parse_schema(READING), None)


def rows_of(folder: Path) -> Counter[str]:
    """Returns the rows of all Parquet files of a folder."""
    return counted(*(row for path in folder.glob("**/*.parquet") for row in pq.read_table(path).to_pylist()))


def write_sales(folder: Path) -> None:
    """Writes two Parquet files of sales, with a column that the example does not read."""
    sales = [
        ("tea", 2, 6.0, MONDAY_MS + 9 * HOUR_MS, "till 1"),
        ("coffee", 1, 4.5, MONDAY_MS + 10 * HOUR_MS, "till 2"),
        ("tea", 1, 3.0, MONDAY_MS + 17 * HOUR_MS, "till 1"),
        ("tea", 5, 15.0, MONDAY_MS + DAY_MS, "till 1"),
        ("coffee", 2, 9.0, MONDAY_MS + DAY_MS - 1, "till 1"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate((sales[:3], sales[3:])):
        table = pa.table(
            dict(zip(["product", "pieces", "price", "at", "till"], zip(*part, strict=True), strict=True))
        )
        pq.write_table(table, folder / f"{number}.parquet")


def _words() -> list[str]:
    return re.findall(r"[a-z']+", (DATA / "hamlet.txt").read_text().lower())


CASES: Mapping[str, Case] = {
    "word_count": Case(
        "--input {data}/hamlet.txt",
        printed=Counter(
            str((word, n)) for word, count in Counter(_words()).items() for n in range(1, count + 1)
        ),
    ),
    "sessions": Case(
        "--input {data}/access.log --gap-minutes 15",
        printed=Counter(
            [
                "199.72.81.55: 2 requests in 722 s, 6245 bytes",
                "199.72.81.55: 2 requests in 3 s, 4771 bytes",
                "unicomp6.unicomp.net: 3 requests in 694 s, 8856 bytes",
                "199.120.110.21: 2 requests in 2 s, 4085 bytes",
                "burger.letters.com: 5 requests in 867 s, 10230 bytes",
                "205.212.115.106: 1 requests in 0 s, 3985 bytes",
                "d104.aa.net: 2 requests in 2 s, 4771 bytes",
                "d104.aa.net: 1 requests in 0 s, 3985 bytes",
            ]
        ),
    ),
    "top_pages": Case(
        "--input {data}/access.log --top 2 --window-minutes 10",
        printed=Counter(
            [
                "04:00 /images/NASA-logosmall.gif 4, /shuttle/countdown/ 4",
                "04:10 /history/apollo/ 2, /history/apollo/apollo-13/ 1",
                "04:40 /shuttle/countdown/ 2, /images/NASA-logosmall.gif 1",
            ]
        ),
    ),
    "enrichment": Case(
        "--orders {t}orders --customers {t}customers --output {t}named",
        topics={
            "orders": [
                _json(customer="c1", amount=5),
                _json(customer="c2", amount=7),
                _json(customer="c1", amount=2),
                _json(customer="nobody", amount=9),
            ],
            "customers": [_json(id="c2", name="Bob"), _json(id="c1", name="Ann")],
            "named": [],
        },
        written={
            "named": counted(
                {"customer": "c1", "amount": 5, "name": "Ann"},
                {"customer": "c1", "amount": 2, "name": "Ann"},
                {"customer": "c2", "amount": 7, "name": "Bob"},
            )
        },
        bounded=False,
    ),
    "avro_to_avro": Case(
        "--input {t}celsius --output {t}fahrenheit",
        topics={
            "celsius": [
                In(single_object({"sensor": "roof", "degrees": -40.0})),
                In(single_object({"sensor": "cellar", "degrees": 12.5})),
            ],
            "fahrenheit": [],
        },
        written={
            "fahrenheit": counted({"sensor": "roof", "degrees": -40.0}, {"sensor": "cellar", "degrees": 54.5})
        },
        decode=from_single_object,
        bounded=False,
    ),
    "route": Case(
        "--input {t}transfers --prefix {t}transfers-",
        topics={
            "transfers": [
                _json(account="1234", country="FI", amount=60),
                _json(account="5678", country="PT", amount=5),
                _json(account="1234", country="FI", amount=7),
            ],
            "transfers-FI": [],
            "transfers-PT": [],
        },
        written={
            "transfers-FI": counted(
                {"account": "1234", "country": "FI", "amount": 60},
                {"account": "1234", "country": "FI", "amount": 7},
            ),
            "transfers-PT": counted({"account": "5678", "country": "PT", "amount": 5}),
        },
        last={"transfers-PT": {"5678": shown({"account": "5678", "country": "PT", "amount": 5})}},
        bounded=False,
    ),
    "deduplicate": Case(
        "--input {data}/events.jsonl --forget-after 60",
        printed=Counter(
            str(json.loads(line))
            for i, line in enumerate((DATA / "events.jsonl").read_text().splitlines())
            if i in (0, 1, 3, 5, 6)
        ),
    ),
    "late_data": Case(
        "--input {t}readings --highest {t}highest --late {t}late",
        topics={
            "readings": [_json(sensor=s, degrees=d, at=MONDAY_MS / 1000 + at) for s, d, at in READINGS],
            "highest": [],
            "late": [],
        },
        bounded=False,
    ),
    "vectorised_word_count": Case(
        "--bounded --input {t}lines --output {t}counts",
        topics={"lines": [In(line.encode()) for line in TEXT.splitlines()], "counts": []},
        last={
            "counts": {
                word: shown({"word": word, "count": count}) for word, count in Counter(TEXT.split()).items()
            }
        },
    ),
    "alerts": Case(
        "--input {t}payments --alerts {t}alerts --limit 100",
        topics={
            "payments": [
                In(b"1234,60", MONDAY_MS + HOUR_MS),
                In(b"5678,99.5", MONDAY_MS + 2 * HOUR_MS),
                In(b"1234,50", MONDAY_MS + 3 * HOUR_MS),
                In(b"1234,80", MONDAY_MS + DAY_MS),
                In(b"5678,0.5", MONDAY_MS + DAY_MS + 1),
            ],
            "alerts": [],
        },
        printed=Counter(["1234 60", "5678 99.5", "1234 110", "1234 80", "5678 0.5"]),
        written={"alerts": counted("1234 has spent 110")},
        decode=bytes.decode,
        bounded=False,
    ),
    "limits": Case(
        "{t}spending {t}limits",
        topics={
            "spending": [
                _json(card="1234", country="FI", amount=60),
                _json(card="5678", country="PT", amount=99.5),
                _json(card="1234", country="FI", amount=50),
                _json(card="9012", country="NL", amount=1000),
                _json(card="5678", country="PT", amount=0.25),
            ],
            "limits": [
                _json(country="FI", limit=300),
                _json(country="PT", limit=99),
                _json(country="FI", limit=100),
            ],
        },
        printed=Counter(["1234 has spent 110", "5678 has spent 99.75"]),
    ),
    "failed_requests": Case(
        "--input {data}/requests.jsonl --output {out}",
        files=counted(
            *(
                {"at": request["at"], "path": request["path"], "seconds": request["milliseconds"] / 1000}
                for request in map(json.loads, (DATA / "requests.jsonl").read_text().splitlines())
                if request["status"] >= 500
            )
        ),
    ),
    "sales_report": Case(
        "--input {data} --output {out}",
        files=counted(
            {"product": "tea", "pieces": 3, "price": 9.0, "at": MONDAY_MS + 9 * HOUR_MS},
            {"product": "coffee", "pieces": 3, "price": 13.5, "at": MONDAY_MS + 10 * HOUR_MS},
            {"product": "tea", "pieces": 5, "price": 15.0, "at": MONDAY_MS + DAY_MS},
        ),
    ),
}
