// Plans and runs an uploaded program. Both run it up to its first execute, on the server.

import { useState } from "preact/hooks";
import { fillPath } from "../api/client";
import type { JobPlan, ProgramFile, RunBody, RunResult } from "../api/openapi";
import { formatPlural } from "../formats";
import { PlanGraph } from "../jobs/plan-graph";
import { linkTo } from "../routing";
import { ActionOutcome } from "./action-outcome";
import { EMPTY_FORM, RunFields, readForm } from "./run-fields";
import { useAction } from "./use-action";

type Plan = JobPlan["plan"];

const NODE_HEIGHT = 84;

export function ProgramForm({ program }: { program: ProgramFile }) {
  const [form, setForm] = useState(EMPTY_FORM);
  const [plan, setPlan] = useState<Plan | null>(null);
  const [job, setJob] = useState<string | null>(null);
  const action = useAction();

  const send = (what: "plan" | "run", describe: (answer: unknown) => string): void => {
    setJob(null);
    const values = readForm(form);
    if (typeof values === "string") {
      action.fail(values);
      return;
    }
    const body: Partial<RunBody> = {
      entryClass: values.target,
      programArgsList: values.arguments,
      parallelism: values.parallelism,
      flinkConfiguration: values.options,
      ...(what === "run" && { savepointPath: values.savepoint }),
    };
    const url = fillPath(`/v1/jars/{jarid}/${what}`, { jarid: program.id });
    void action.run({ method: "POST", url, body }, describe);
  };
  const drawPlan = () =>
    send("plan", (answer) => {
      const found = (answer as JobPlan).plan;
      setPlan(found);
      return `The program makes the job ${found.name}, with ${formatPlural(found.nodes.length, "vertex", "vertices")}.`;
    });
  const run = () =>
    send("run", (answer) => {
      const id = (answer as RunResult).jobid;
      setJob(id);
      return `The job ${id} is accepted.`;
    });

  const isBusy = action.state.kind === "sent";
  return (
    <section aria-label={`Run ${program.name}`}>
      <h2>Run {program.name}</h2>
      <form
        class="card fields"
        onSubmit={(event) => {
          event.preventDefault();
          (event.submitter?.getAttribute("value") === "plan" ? drawPlan : run)();
        }}
      >
        <RunFields form={form} isTargetOptional={program.name.endsWith(".py")} onChange={setForm} />
        <div class="buttons">
          <button type="submit" value="run" class="primary" disabled={isBusy}>
            Run
          </button>
          <button type="submit" value="plan" disabled={isBusy}>
            Draw the plan
          </button>
        </div>
        <ActionOutcome state={action.state} />
        {job !== null && (
          <p>
            <a href={linkTo(["jobs", job])}>Go to the job</a>
          </p>
        )}
      </form>
      {plan !== null && <PlanView plan={plan} />}
    </section>
  );
}

function PlanView({ plan }: { plan: Plan }) {
  const byId = new Map(plan.nodes.map((node) => [node.id, node]));
  return (
    <PlanGraph plan={plan} nodeHeight={NODE_HEIGHT} label={`Plan of ${plan.name}`}>
      {(id) => {
        const node = byId.get(id);
        const name = readName(node?.description ?? "");
        return (
          <>
            <h3 title={name}>{name}</h3>
            <p class="small muted">{formatPlural(node?.parallelism ?? 0, "subtask")}</p>
          </>
        );
      }}
    </PlanGraph>
  );
}

/** Returns the names of chained operators in one line. In a description each has a line, which ends with <br/>. */
function readName(description: string): string {
  return description
    .split("<br/>")
    .map((line) => line.replace(/^\s*\+- /, ""))
    .filter((line) => line !== "")
    .join(" -> ");
}
