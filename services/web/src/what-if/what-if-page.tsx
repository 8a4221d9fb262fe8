// What would have happened: a scenario, its simulation from the moment that is shown, and what really happened beside it.

import { useState } from "preact/hooks";
import type { WhatIfResult } from "../api/openapi";
import { EventLink } from "../events/event-link";
import { formatCount, formatDuration, formatTime, NONE } from "../formats";
import { at } from "../moment";
import { TableCard, TableHead } from "../parts/table";
import { changeQuery, linkTo, route } from "../routing";
import { ChangeForm } from "./change-form";
import { EMPTY_SCENARIO } from "./scenario";
import { type Progress, type Simulation, useSimulation } from "./simulation";
import { labelOf } from "./slot-rows";
import { SlotsDiagram } from "./slots-diagram";

export function WhatIfPage() {
  const { scenario } = route.value.query;
  const [text, setText] = useState(scenario ?? EMPTY_SCENARIO);
  // Who opens a link to a scenario sees its result.
  const [simulation, setSimulation] = useState<Simulation | null>(() =>
    scenario === undefined ? null : { at: at.value, scenario },
  );
  const progress = useSimulation(simulation);

  const start = (event: SubmitEvent): void => {
    event.preventDefault();
    changeQuery({ scenario: text });
    setSimulation({ at: at.value, scenario: text });
  };

  return (
    <>
      <h1>What if</h1>
      <p class="muted">
        A simulation continues the history from a moment with your changes. It changes nothing in the cluster.
      </p>
      <div class="scenario">
        <form class="card fields" onSubmit={start}>
          <p>
            From <b>{at.value === null ? "now" : describeMoment(at.value)}</b> on.{" "}
            {at.value === null
              ? "There is nothing to compare with: choose an earlier moment with the bar on top."
              : "The bar on top chooses another moment."}
          </p>
          <label>
            Scenario, in YAML
            <textarea
              rows={9}
              class="code"
              spellcheck={false}
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </label>
          <div class="buttons">
            <button type="submit" class="primary">
              Simulate
            </button>
            {progress.kind === "runs" && (
              <button type="button" onClick={() => setSimulation(null)}>
                End
              </button>
            )}
          </div>
          <Outcome progress={progress} />
        </form>
        <ChangeForm text={text} onChange={setText} />
      </div>
      {progress.kind === "done" && <Result result={progress.result} />}
    </>
  );
}

function describeMoment(moment: string): string {
  return /^\d+$/.test(moment) ? `offset ${formatCount(Number(moment))}` : moment;
}

function Outcome({ progress }: { progress: Progress }) {
  switch (progress.kind) {
    case "runs":
      return (
        <div role="status">
          <progress aria-label="Simulation" />
          <p class="small muted number">
            {formatCount(progress.read)} events read, {formatCount(progress.simulated)} simulated
          </p>
        </div>
      );
    case "failed":
      return (
        <p class="note bad" role="alert">
          {progress.error}
        </p>
      );
    default:
      return null;
  }
}

function Result({ result }: { result: WhatIfResult }) {
  return (
    <section aria-label="Result">
      <h2>What differs</h2>
      <p class="muted small">
        From <EventLink offset={Math.max(0, result.offset)} /> ({formatTime(result.start)}) on, for{" "}
        {formatDuration(result.end - result.start)}: {formatCount(result.events)} simulated events.
      </p>
      <ul class="differences">
        {result.differences.map((each) => (
          <li key={each}>{each}</li>
        ))}
      </ul>
      {result.notes.length > 0 && (
        <div class="note warn">
          <ul>
            {result.notes.map((each) => (
              <li key={each}>Without effect: {each}</li>
            ))}
          </ul>
        </div>
      )}
      <h2>Slots over time</h2>
      <SlotsDiagram result={result} />
      {result.outcomes.length > 0 && <Jobs result={result} />}
    </section>
  );
}

function Jobs({ result }: { result: WhatIfResult }) {
  return (
    <>
      <h2>Jobs</h2>
      <TableCard label="Jobs, really and simulated">
        <TableHead
          columns={[
            "Job",
            "Part",
            "Outcome",
            { number: "Waited for slots" },
            { number: "Restarts" },
            { number: "Interrupted" },
          ]}
        />
        <tbody>
          {result.jobs.flatMap((job, place) =>
            result.outcomes
              .filter((each) => each.job === place)
              .map((each, index) => (
                <tr key={`${job.id} ${each.is_simulated}`}>
                  <td>{index === 0 ? <JobName result={result} place={place} /> : ""}</td>
                  <td class="muted">{each.is_simulated ? "simulated" : "really"}</td>
                  <td>{each.ended}</td>
                  <td class="right nowrap">{each.waited_for_slots}</td>
                  <td class="right">{formatCount(each.restarts)}</td>
                  <td class="right nowrap">{each.interrupted}</td>
                </tr>
              )),
          )}
        </tbody>
      </TableCard>
    </>
  );
}

/** A link, unless the job is in the simulation only. */
function JobName({ result, place }: { result: WhatIfResult; place: number }) {
  const job = result.jobs[place];
  if (job === undefined) return NONE;
  const isReal = result.outcomes.some((each) => each.job === place && !each.is_simulated);
  const label = labelOf(result, place);
  return isReal ? <a href={linkTo(["jobs", job.id])}>{label}</a> : label;
}
