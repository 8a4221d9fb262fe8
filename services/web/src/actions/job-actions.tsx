// What can be done with a running job: the requests of Flink's API, and the events that they become.

import { useState } from "preact/hooks";
import { fillPath } from "../api/client";
import { useServer } from "../api/server";
import { at } from "../moment";
import { ActionOutcome } from "./action-outcome";
import { ConfirmDialog } from "./confirm-dialog";
import { useAction } from "./use-action";

type Question = "cancel" | "stop" | "savepoint" | "pause" | "restart";

/** Buttons for a job that has not ended. As of a past moment, or at a history server, there is nothing to do. */
export function JobActions({ id, status, isRunning }: { id: string; status: string; isRunning: boolean }) {
  const { isHistory } = useServer();
  const action = useAction();
  const [question, setQuestion] = useState<Question | null>(null);
  const [directory, setDirectory] = useState("");
  const [isDrain, setDrain] = useState(false);
  if (isHistory || at.value !== null || (!isRunning && action.state.kind === "ready")) return null;

  const values = { jobid: id };
  const target = directory.trim() === "" ? null : directory.trim();
  const requests = {
    cancel: () =>
      action.run(
        { method: "PATCH", url: fillPath("/v1/jobs/{jobid}", values) },
        () => "The job is cancelled.",
      ),
    stop: () =>
      action.run(
        {
          method: "POST",
          url: fillPath("/v1/jobs/{jobid}/stop", values),
          body: { targetDirectory: target, drain: isDrain },
        },
        () => "The job takes a savepoint and ends.",
      ),
    savepoint: () =>
      action.run(
        {
          method: "POST",
          url: fillPath("/v1/jobs/{jobid}/savepoints", values),
          body: { "target-directory": target },
        },
        () => "The job takes a savepoint.",
      ),
    checkpoint: () =>
      action.run(
        { method: "POST", url: fillPath("/v1/jobs/{jobid}/checkpoints", values), body: {} },
        () => "The job takes a checkpoint.",
      ),
    pause: () =>
      action.run(
        { method: "POST", url: fillPath("/api/v1/jobs/{jobid}/pause", values) },
        () => "The job pauses.",
      ),
    resume: () =>
      action.run(
        { method: "POST", url: fillPath("/api/v1/jobs/{jobid}/resume", values) },
        () => "The job is resumed.",
      ),
    restart: () =>
      action.run(
        { method: "POST", url: fillPath("/api/v1/jobs/{jobid}/restart", values), body: {} },
        () => "The tasks of the job restart.",
      ),
  };
  const isBusy = action.state.kind === "sent";
  return (
    <section class="actions" aria-label="Actions">
      {isRunning && status === "SUSPENDED" && (
        <div class="buttons">
          <button type="button" disabled={isBusy} onClick={requests.resume}>
            Resume
          </button>
          <button type="button" class="danger" disabled={isBusy} onClick={() => setQuestion("cancel")}>
            Cancel…
          </button>
        </div>
      )}
      {isRunning && status !== "SUSPENDED" && (
        <div class="buttons">
          <button type="button" disabled={isBusy} onClick={requests.checkpoint}>
            Take checkpoint
          </button>
          <button type="button" disabled={isBusy} onClick={() => setQuestion("savepoint")}>
            Take savepoint…
          </button>
          <button type="button" disabled={isBusy} onClick={() => setQuestion("stop")}>
            Stop with savepoint…
          </button>
          <button type="button" disabled={isBusy} onClick={() => setQuestion("pause")}>
            Pause…
          </button>
          <button type="button" disabled={isBusy} onClick={() => setQuestion("restart")}>
            Restart tasks…
          </button>
          <button type="button" class="danger" disabled={isBusy} onClick={() => setQuestion("cancel")}>
            Cancel…
          </button>
        </div>
      )}
      <ActionOutcome state={action.state} />
      {question !== null && (
        <ConfirmDialog
          title={TITLES[question]}
          confirm={CONFIRMS[question]}
          isDangerous={question === "cancel"}
          onConfirm={requests[question]}
          onClose={() => setQuestion(null)}
        >
          {question in EXPLANATIONS ? (
            <p>{EXPLANATIONS[question]}</p>
          ) : (
            <>
              <label>
                Directory
                <input
                  value={directory}
                  placeholder="The default savepoint directory"
                  onInput={(event) => setDirectory(event.currentTarget.value)}
                />
              </label>
              {question === "stop" && (
                <label class="check">
                  <input
                    type="checkbox"
                    checked={isDrain}
                    onChange={(event) => setDrain(event.currentTarget.checked)}
                  />
                  Drain: end event time before, so that all windows fire
                </label>
              )}
            </>
          )}
        </ConfirmDialog>
      )}
    </section>
  );
}

const TITLES: Readonly<Record<Question, string>> = {
  cancel: "Cancel the job?",
  stop: "Stop the job with a savepoint?",
  savepoint: "Take a savepoint?",
  pause: "Pause the job?",
  restart: "Restart the tasks of the job?",
};
const CONFIRMS: Readonly<Record<Question, string>> = {
  cancel: "Cancel the job",
  stop: "Stop with savepoint",
  savepoint: "Take savepoint",
  pause: "Pause the job",
  restart: "Restart tasks",
};
const EXPLANATIONS: Readonly<Partial<Record<Question, string>>> = {
  cancel: "The job ends at once. What it has committed stays; it leaves no savepoint.",
  pause: "Its tasks end and its slots are free. Its state and positions stay until it is resumed.",
  restart: "Each task continues from its last commit. That counts as no failure.",
};
