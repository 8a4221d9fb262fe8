// Submits a program that the cluster has, by the name of its function.

import { useState } from "preact/hooks";
import { fillPath } from "../api/client";
import type { SubmissionBody } from "../api/openapi";
import { linkTo } from "../routing";
import { ActionOutcome } from "./action-outcome";
import { useAction } from "./use-action";

interface Form {
  readonly target: string;
  readonly arguments: string;
  readonly configuration: string;
  readonly parallelism: string;
  readonly savepoint: string;
}

const EMPTY: Form = { target: "", arguments: "", configuration: "", parallelism: "", savepoint: "" };

export function SubmitPage() {
  const [form, setForm] = useState(EMPTY);
  const [fault, setFault] = useState<string | null>(null);
  const [job, setJob] = useState<string | null>(null);
  const action = useAction();
  const change = (name: keyof Form) => (event: { currentTarget: { value: string } }) =>
    setForm({ ...form, [name]: event.currentTarget.value });

  const submit = (event: Event): void => {
    event.preventDefault();
    const body = readForm(form);
    setJob(null);
    setFault(typeof body === "string" ? body : null);
    if (typeof body === "string") return;
    void action.run({ method: "POST", url: fillPath("/api/v1/submissions"), body }, (answer) => {
      const id = readJobId(answer);
      setJob(id);
      return `The job ${id ?? ""} is accepted.`;
    });
  };

  return (
    <>
      <h1>Submit a program</h1>
      <form class="card fields" onSubmit={submit}>
        <label>
          Function of the program
          <input
            required
            value={form.target}
            onInput={change("target")}
            placeholder="module:function"
            pattern="[\w.]+:\w+"
            title="module:function, as in orders.count:main"
          />
        </label>
        <label>
          Arguments, one on each line
          <textarea rows={3} value={form.arguments} onInput={change("arguments")} />
        </label>
        <label>
          Options, key=value on each line
          <textarea rows={3} value={form.configuration} onInput={change("configuration")} />
        </label>
        <label>
          Parallelism
          <input
            type="number"
            min={1}
            value={form.parallelism}
            placeholder="parallelism.default"
            onInput={change("parallelism")}
          />
        </label>
        <label>
          Savepoint or checkpoint to start from
          <input value={form.savepoint} onInput={change("savepoint")} />
        </label>
        <div class="buttons">
          <button type="submit" class="primary" disabled={action.state.kind === "sent"}>
            Submit
          </button>
        </div>
        {fault !== null && (
          <p class="note bad" role="alert">
            {fault}
          </p>
        )}
        <ActionOutcome state={action.state} />
        {job !== null && (
          <p>
            <a href={linkTo(["jobs", job])}>Go to the job</a>
          </p>
        )}
      </form>
    </>
  );
}

/** Returns the body of the request, or the fault of the form. */
function readForm(form: Form): SubmissionBody | string {
  const configuration: Record<string, string> = {};
  for (const line of readLines(form.configuration)) {
    const place = line.indexOf("=");
    if (place < 1) return `An option is key=value; this line is not: ${line}`;
    configuration[line.slice(0, place).trim()] = line.slice(place + 1).trim();
  }
  return {
    target: form.target.trim(),
    arguments: readLines(form.arguments),
    configuration,
    parallelism: form.parallelism === "" ? null : Number(form.parallelism),
    savepoint_path: form.savepoint.trim() || null,
    allow_non_restored_state: false,
  };
}

function readLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

function readJobId(answer: unknown): string | null {
  const id = (answer as { job_id?: unknown }).job_id;
  return typeof id === "string" ? id : null;
}
