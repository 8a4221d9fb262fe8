// Numbers, times and sizes as text. Times are in milliseconds since the epoch, as in Flink's API.

const LOCALE = "en-US";
const integers = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });

export const NONE = "–";

export function formatCount(count: number): string {
  return integers.format(count);
}

/** 1.2K, 3.4M */
export function formatCompact(count: number): string {
  return count < 10_000 ? integers.format(count) : compact.format(count);
}

export function formatRate(perSecond: number): string {
  return `${perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : formatCompact(perSecond)}/s`;
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? integers.format(value) : value.toFixed(1)} ${units[unit]}`;
}

/** 350 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h; a dash for a negative duration: it is not known. */
export function formatDuration(ms: number): string {
  if (ms < 0) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** The time of day, with the date if that is not today. */
export function formatTime(ms: number): string {
  if (ms <= 0) return NONE;
  const time = new Date(ms);
  const isToday = day.format(time) === day.format(new Date());
  return isToday ? clock.format(time) : `${day.format(time)} ${clock.format(time)}`;
}

/** Date and time with milliseconds, in UTC. */
export function formatExactTime(ms: number): string {
  return ms <= 0 ? NONE : new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");
}

/** 1 slot, 2 slots */
export function formatPlural(count: number, noun: string, plural = `${noun}s`): string {
  return `${formatCount(count)} ${count === 1 ? noun : plural}`;
}
