import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Returns a reference for an element, and the element's width in pixels; 0 until it is known. */
export function useWidth<Kind extends HTMLElement>(): [RefObject<Kind | null>, number] {
  const element = useRef<Kind>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const found = element.current;
    if (found === null) return;
    setWidth(found.clientWidth);
    const observer = new ResizeObserver(() => setWidth(found.clientWidth));
    observer.observe(found);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}
