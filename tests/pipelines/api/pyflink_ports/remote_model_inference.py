"""PyFlink's datastream/asyncio/remote_model_inference.py: each third user times out once."""

import argparse
import asyncio
import json
from datetime import timedelta
from typing import NamedTuple

from tailrace import (
    AsyncFunction,
    FileSink,
    FixedDelayRetryStrategy,
    RuntimeContext,
    StreamExecutionEnvironment,
)


class Comment(NamedTuple):
    user_id: int
    comments: str


def comment(index: int) -> Comment:
    return Comment(index, f"comment {index}")


def as_json(value: Comment, analysis_result: str | None) -> str:
    return json.dumps({**value._asdict(), "analysis_result": analysis_result})


def is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError)


class AsyncLLMRequest(AsyncFunction[Comment, str]):
    def open(self, context: RuntimeContext) -> None:
        self.retried_keys: set[int] = set()  # and the client of the model

    def close(self) -> None:
        pass  # closes the client

    async def async_invoke(self, value: Comment) -> list[str]:
        await asyncio.sleep(0.001)
        if value.user_id % 3 == 0 and value.user_id not in self.retried_keys:
            self.retried_keys.add(value.user_id)
            raise TimeoutError
        return [as_json(value, "positive")]

    def timeout(self, value: Comment) -> list[str]:
        return [as_json(value, None)]


def main(output_path: str | None) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure("execution.checkpointing.interval", "30 s")
    ds = env.generate(comment, count=20)

    result_stream = ds.async_map(
        AsyncLLMRequest(),
        timeout=timedelta(seconds=100),
        retry=FixedDelayRetryStrategy(
            max_attempts=100, delay=timedelta(milliseconds=1), exception_predicate=is_timeout
        ),
        capacity=1_000,
        ordered=False,
        output_type=str,
    )

    if output_path is not None:
        result_stream.sink_to(FileSink(output_path, prefix="prefix"))
    else:
        result_stream.print()

    env.execute()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output")
    main(parser.parse_args().output)
