// The text of a scenario, as `tailrace what-if` reads it. A change becomes a line of YAML in it.

export type Change =
  | { readonly kind: "join"; readonly count: number; readonly slots: number | null }
  | { readonly kind: "kill"; readonly taskExecutor: string }
  | { readonly kind: "submit"; readonly like: string; readonly parallelism: number | null }
  | { readonly kind: "cancel"; readonly job: string }
  | { readonly kind: "kill_leader"; readonly role: string };

export const EMPTY_SCENARIO = "until: 10 min\n";

/** Returns the text with an event at a time after the start, such as `30 s`. */
export function addEvent(text: string, at: string, change: Change): string {
  return addLine(text, "events", `  - {at: ${quote(at)}, ${describeChange(change)}}`);
}

/** Returns the text with the value of an option; an earlier value of it is replaced. */
export function addOption(text: string, key: string, value: string): string {
  const line = `  ${quote(key)}: ${quote(value)}`;
  const others = text.split("\n").filter((each) => !each.startsWith(`  ${quote(key)}:`));
  return addLine(others.join("\n"), "configuration", line);
}

function describeChange(change: Change): string {
  switch (change.kind) {
    case "join":
      return `join: {count: ${change.count}${change.slots === null ? "" : `, slots: ${change.slots}`}}`;
    case "kill":
      return `kill: ${quote(change.taskExecutor)}`;
    case "submit":
      return `submit: {like: ${quote(change.like)}${change.parallelism === null ? "" : `, parallelism: ${change.parallelism}`}}`;
    case "cancel":
      return `cancel: ${quote(change.job)}`;
    case "kill_leader":
      return `kill_leader: ${change.role}`;
  }
}

/** Adds a line at the end of a section, which begins the section if the text does not have it. */
function addLine(text: string, section: string, line: string): string {
  const lines = text.trimEnd().split("\n");
  const start = lines.findIndex((each) => each.trimEnd() === `${section}:`);
  if (start < 0) return `${[...lines, `${section}:`, line].join("\n").trimStart()}\n`;
  const length = lines.slice(start + 1).findIndex((each) => each !== "" && !/^[\s#-]/.test(each));
  const end = length < 0 ? lines.length : start + 1 + length;
  return `${[...lines.slice(0, end), line, ...lines.slice(end)].join("\n")}\n`;
}

/** What is no plain word or duration is quoted: JSON is YAML. */
function quote(text: string): string {
  return /^[\w.-]+( (ms|s|min|h|d))?$/.test(text) ? text : JSON.stringify(text);
}
