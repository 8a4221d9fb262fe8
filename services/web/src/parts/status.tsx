// The status of a job or an attempt: a word, and a colour that says the same.

const TONES: Readonly<Record<string, string>> = {
  RUNNING: "good",
  FINISHED: "done",
  COMPLETED: "done",
  FAILED: "bad",
  FAILING: "bad",
  CANCELED: "over",
  CANCELLING: "warn",
  CANCELING: "warn",
  RESTARTING: "warn",
  SUSPENDED: "warn",
  IN_PROGRESS: "busy",
  INITIALIZING: "busy",
  DEPLOYING: "busy",
  SCHEDULED: "busy",
  CREATED: "busy",
  RECONCILING: "busy",
};

/** Returns the tone of a status: good, done, bad, warn, busy, over. */
export function toneOf(status: string): string {
  return TONES[status] ?? "over";
}

export function Status({ of }: { of: string }) {
  return <span class={`status ${toneOf(of)}`}>{of.replaceAll("_", " ").toLowerCase()}</span>;
}
