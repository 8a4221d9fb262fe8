// What the print() of a job wrote: its end, and what is added to it. It is that of now, whatever moment is shown.

import { type AnswerOf, get } from "../api/client";
import { FollowedLines, type TextPart } from "../parts/followed-lines";

type OutputLine = AnswerOf<"/api/v1/jobs/{jobid}/output">["lines"][number];

const MOST_LINES = 10_000;

export function OutputView({ id }: { id: string }) {
  const read = async (from: number | undefined, signal: AbortSignal): Promise<TextPart> => {
    // Later parts are larger, so that a job that prints much does not get ahead of the page.
    const query = from === undefined ? {} : { from, limit: MOST_LINES };
    const { body } = await get("/api/v1/jobs/{jobid}/output", { jobid: id }, query, signal);
    return { text: body.lines.map(formatLine).join(""), next: body.next };
  };
  return <FollowedLines subject={id} read={read} empty="The job has printed nothing yet." />;
}

/** SUBTASK> TEXT or IDENTIFIER:SUBTASK> TEXT, as Flink's print and `tailrace output`. */
function formatLine({ identifier, subtask, text }: OutputLine): string {
  return `${identifier === null ? "" : `${identifier}:`}${subtask}> ${text}\n`;
}
