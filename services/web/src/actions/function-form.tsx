// Submits a program that the cluster has, by the name of its function.

import { useState } from "preact/hooks";
import { fillPath } from "../api/client";
import type { Submission, SubmissionBody } from "../api/openapi";
import { linkTo } from "../routing";
import { ActionOutcome } from "./action-outcome";
import { EMPTY_FORM, RunFields, readForm } from "./run-fields";
import { useAction } from "./use-action";

export function FunctionForm() {
  const [form, setForm] = useState(EMPTY_FORM);
  const [job, setJob] = useState<string | null>(null);
  const action = useAction();

  const submit = (event: Event): void => {
    event.preventDefault();
    setJob(null);
    const values = readForm(form);
    if (typeof values === "string") {
      action.fail(values);
      return;
    }
    const body: SubmissionBody = {
      target: values.target ?? "",
      arguments: values.arguments,
      configuration: values.options,
      parallelism: values.parallelism,
      savepoint_path: values.savepoint,
      allow_non_restored_state: false,
    };
    void action.run({ method: "POST", url: fillPath("/api/v1/submissions"), body }, (answer) => {
      const id = (answer as Submission).job_id;
      setJob(id);
      return `The job ${id} is accepted.`;
    });
  };

  return (
    <form class="card fields" onSubmit={submit}>
      <RunFields form={form} onChange={setForm} />
      <div class="buttons">
        <button type="submit" class="primary" disabled={action.state.kind === "sent"}>
          Submit
        </button>
      </div>
      <ActionOutcome state={action.state} />
      {job !== null && (
        <p>
          <a href={linkTo(["jobs", job])}>Go to the job</a>
        </p>
      )}
    </form>
  );
}
