// Adds a change to a scenario without knowing its syntax.

import { useState } from "preact/hooks";
import { useQuery } from "../api/use-query";
import { addEvent, addOption, type Change } from "./scenario";

const KINDS = {
  join: "TaskExecutors join",
  kill: "A TaskExecutor dies",
  option: "An option has another value",
  submit: "A job is submitted again",
  cancel: "A job is cancelled",
  kill_leader: "The leader of a role dies",
};
type Kind = keyof typeof KINDS;
const ROLES = ["dispatcher", "resource_manager"];

export function ChangeForm({ text, onChange }: { text: string; onChange: (text: string) => void }) {
  const [kind, setKind] = useState<Kind>("join");
  const [added, setAdded] = useState(0);
  const cluster = useQuery("/api/v1/cluster");
  const jobs = useQuery("/api/v1/jobs");
  const executors = (cluster.body?.task_executors ?? []).map(({ id }) => ({ value: id, title: id }));
  const known = (jobs.body?.jobs ?? []).map(({ job_id, name }) => ({
    value: job_id,
    title: name === job_id ? name : `${name} (${job_id.slice(-8)})`,
  }));

  const add = (event: SubmitEvent): void => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    const read = (name: string) => String(fields.get(name) ?? "").trim();
    if (kind === "option") onChange(addOption(text, read("key"), read("value")));
    else onChange(addEvent(text, read("at"), readChange(kind, read)));
    setAdded((count) => count + 1);
  };

  return (
    <form class="card fields" onSubmit={add} aria-label="Add a change">
      <label>
        Change
        <select
          value={kind}
          onChange={(event) => {
            setKind(event.currentTarget.value as Kind);
            setAdded(0);
          }}
        >
          {Object.entries(KINDS).map(([each, title]) => (
            <option key={each} value={each}>
              {title}
            </option>
          ))}
        </select>
      </label>
      {kind !== "option" && (
        <label>
          After
          <input
            name="at"
            required
            defaultValue="10 s"
            pattern="\s*\d+\s*(ms|s|min|h|d)\s*"
            title="As in 5 s, 2 min"
          />
        </label>
      )}
      {kind === "join" && (
        <>
          <label>
            How many
            <input name="count" type="number" min={1} max={10_000} required defaultValue="1" />
          </label>
          <label>
            Slots of each
            <input name="slots" type="number" min={1} max={1024} placeholder="As the newest has" />
          </label>
        </>
      )}
      {kind === "kill" && <Choice name="chosen" title="TaskExecutor" choices={executors} />}
      {(kind === "submit" || kind === "cancel") && <Choice name="chosen" title="Job" choices={known} />}
      {kind === "submit" && (
        <label>
          Parallelism
          <input name="parallelism" type="number" min={1} placeholder="The same" />
        </label>
      )}
      {kind === "kill_leader" && (
        <Choice
          name="chosen"
          title="Role"
          choices={ROLES.map((value) => ({ value, title: value.replace("_", " ") }))}
        />
      )}
      {kind === "option" && (
        <>
          <label>
            Key
            <input name="key" required placeholder="cluster.evenly-spread-out-slots" pattern="[\w.\-]+" />
          </label>
          <label>
            Value
            <input name="value" required />
          </label>
        </>
      )}
      <div class="buttons">
        <button type="submit">Add to the scenario</button>
      </div>
      <p class="small muted" role="status">
        {added > 0 && "Added."}
      </p>
    </form>
  );
}

interface ChoiceProps {
  readonly name: string;
  readonly title: string;
  readonly choices: readonly { readonly value: string; readonly title: string }[];
}

function Choice({ name, title, choices }: ChoiceProps) {
  return (
    <label>
      {title}
      <select name={name} required>
        {choices.length === 0 && <option value="">None at this moment</option>}
        {choices.map((each) => (
          <option key={each.value} value={each.value}>
            {each.title}
          </option>
        ))}
      </select>
    </label>
  );
}

function readChange(kind: Exclude<Kind, "option">, read: (name: string) => string): Change {
  const number = (name: string) => (read(name) === "" ? null : Number(read(name)));
  switch (kind) {
    case "join":
      return { kind, count: number("count") ?? 1, slots: number("slots") };
    case "kill":
      return { kind, taskExecutor: read("chosen") };
    case "submit":
      return { kind, like: read("chosen"), parallelism: number("parallelism") };
    case "cancel":
      return { kind, job: read("chosen") };
    case "kill_leader":
      return { kind, role: read("chosen") };
  }
}
