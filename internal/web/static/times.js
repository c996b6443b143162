// Beside each time in UTC stands how long ago it was, by the server: keeps that up to date, and adds the local time.
(() => {
  const known = new WeakMap(); // of each element: when it was first seen, and how many seconds had passed then
  const apart = (s) => {
    const n = Math.abs(s);
    const [count, unit] = n < 60 ? [n, "s"] : n < 3600 ? [n / 60, "min"] : n < 172800 ? [n / 3600, "h"] : [n / 86400, "days"];
    return s < 0 ? `in ${Math.floor(count)} ${unit}` : `${Math.floor(count)} ${unit} ago`;
  };
  const local = (utc) => {
    const here = new Date(utc).toLocaleString("sv"); // as 2026-12-01 06:00:00
    const there = new Date(utc).toISOString().slice(0, 19).replace("T", " ");
    if (here === there) return "";
    return ", local " + (here.slice(0, 10) === there.slice(0, 10) ? here.slice(11) : here);
  };
  const show = () => {
    for (const e of document.querySelectorAll("small[data-passed]")) {
      if (!known.has(e)) known.set(e, [performance.now(), Number(e.dataset.passed)]);
      const [seen, passed] = known.get(e);
      const text = apart(Math.trunc(passed + (performance.now() - seen) / 1000)) + local(e.dataset.at);
      if (e.textContent !== text) e.textContent = text;
    }
  };
  show();
  if (local(new Date())) document.getElementById("zone").textContent = ` Local times are of ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`;
  new MutationObserver(show).observe(document.getElementById("main"), { childList: true, subtree: true });
  setInterval(show, 10000);
})();
