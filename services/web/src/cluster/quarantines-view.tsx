// Which TaskExecutors and hosts get no slots, why and since when; and the requests that begin and end that.

import { useState } from "preact/hooks";
import { ActionOutcome } from "../actions/action-outcome";
import { ConfirmDialog } from "../actions/confirm-dialog";
import { type Action, useAction } from "../actions/use-action";
import type { AnswerOf } from "../api/client";
import { useServer } from "../api/server";
import { useQuery } from "../api/use-query";
import { formatCount, formatExactTime, formatTime } from "../formats";
import { at } from "../moment";
import { TableCard, TableHead } from "../parts/table";
import type { TaskExecutorSlots } from "./cluster-slots";

type Quarantine = AnswerOf<"/api/v1/quarantines">["quarantines"][number];
type Mode = "QUARANTINED" | "DRAINING" | "RELEASED";

/** Sends requests about TaskExecutors and hosts; null where nothing can be done. */
export type QuarantineAction = Action | null;

/** Returns the action of the cluster's page. As of a past moment, or at a history server, there is nothing to do. */
export function useQuarantineAction(): QuarantineAction {
  const { isHistory } = useServer();
  const action = useAction();
  return isHistory || at.value !== null ? null : action;
}

function send(action: Action, mode: Mode, of: Pick<Quarantine, "taskExecutor" | "host">, reason?: string) {
  const name = of.taskExecutor ?? `host ${of.host}`;
  const body = { ...of, mode, ...(reason === undefined ? {} : { reason }) };
  return action.run({ method: "POST", url: "/api/v1/quarantines", body }, () => `${name}: ${SAID[mode]}`);
}

/** All quarantines, also of TaskExecutors and hosts that are not there. */
export function QuarantinesView({ action }: { action: QuarantineAction }) {
  const found = useQuery("/api/v1/quarantines").body?.quarantines ?? [];
  if (found.length === 0) return action === null ? null : <ActionOutcome state={action.state} />;
  const columns = ["Who", "State", "Why", "Since", "Until", { number: "Held slots" }];
  return (
    <>
      <h2>Quarantines</h2>
      <TableCard label="Quarantines">
        <TableHead columns={action === null ? columns : [...columns, "Release"]} />
        <tbody>
          {found.map((each) => (
            <tr key={`${each.taskExecutor} ${each.host}`}>
              <td>
                <b>{each.taskExecutor ?? `host ${each.host}`}</b>
              </td>
              <td>
                <QuarantineStatus mode={each.mode} />
              </td>
              <td>{each.reason}</td>
              <td title={formatExactTime(each.since)}>{formatTime(each.since)}</td>
              <td title={formatExactTime(each.until)}>
                {each.until < 0 ? "released by hand" : formatTime(each.until)}
              </td>
              <td class="right">{formatCount(each.heldSlots)}</td>
              {action !== null && (
                <td>
                  <button
                    type="button"
                    disabled={action.state.kind === "sent"}
                    onClick={() =>
                      send(action, "RELEASED", { taskExecutor: each.taskExecutor, host: each.host })
                    }
                  >
                    Release
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </TableCard>
      {action !== null && <ActionOutcome state={action.state} />}
    </>
  );
}

export function QuarantineStatus({ mode, title }: { mode: string; title?: string }) {
  return (
    <span class="status warn" title={title}>
      {mode === "DRAINING" ? "drained" : "quarantined"}
    </span>
  );
}

/** The buttons of a TaskExecutor that is in use. */
export function QuarantineButtons({ executor, action }: { executor: TaskExecutorSlots; action: Action }) {
  const [mode, setMode] = useState<Mode | null>(null);
  const [reason, setReason] = useState("");
  const [isOfHost, setOfHost] = useState(false);
  const isBusy = action.state.kind === "sent";
  const of = isOfHost
    ? { taskExecutor: null, host: executor.host }
    : { taskExecutor: executor.id, host: null };
  return (
    <div class="buttons">
      <button type="button" disabled={isBusy} onClick={() => setMode("QUARANTINED")}>
        Quarantine…
      </button>
      <button type="button" disabled={isBusy} onClick={() => setMode("DRAINING")}>
        Drain…
      </button>
      {mode !== null && (
        <ConfirmDialog
          title={`${TITLES[mode]} ${executor.id}?`}
          confirm={TITLES[mode]}
          onConfirm={() => send(action, mode, of, reason.trim() || "asked for on the page")}
          onClose={() => setMode(null)}
        >
          <p>
            It gets no more slots. Its tasks move job by job while other slots are free, until it is released.
            {mode === "DRAINING" &&
              " What the ResourceManager has started there is stopped when it is empty."}
          </p>
          <label>
            Why
            <input
              value={reason}
              placeholder="asked for on the page"
              onInput={(event) => setReason(event.currentTarget.value)}
            />
          </label>
          <label class="check">
            <input
              type="checkbox"
              checked={isOfHost}
              onChange={(event) => setOfHost(event.currentTarget.checked)}
            />
            All TaskExecutors of host {executor.host}
          </label>
        </ConfirmDialog>
      )}
    </div>
  );
}

const TITLES: Readonly<Record<Mode, string>> = {
  QUARANTINED: "Quarantine",
  DRAINING: "Drain",
  RELEASED: "Release",
};
const SAID: Readonly<Record<Mode, string>> = {
  QUARANTINED: "it is quarantined.",
  DRAINING: "it is drained.",
  RELEASED: "it is released.",
};
