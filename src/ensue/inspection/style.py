"""The look of a page in light and in dark, and a script that marks a word in all drawings."""

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1e21; --faint: #666b70; --line: #d8dbdf; --cell: #f3f4f6;
  --warm: #e8590c; --cool: #1c7ed6; --good: #2b8a3e; --a: #0b7285; --b: #c2255c; --c: #d9730d; --d: #5f3dc4;
  --e: #868e96; --font: "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", "Noto Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --ink: #e6e8ea; --faint: #9aa0a6; --line: #373b40; --cell: #212428; --warm: #ff8a4c;
    --cool: #58aef5; --good: #69db7c; --a: #3bc9db; --b: #f783ac; --c: #ffc078; --d: #b197fc; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 1240px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 var(--font); }
h1 { font-size: 1.45rem; line-height: 1.3; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: .95rem; margin: 1.2rem 0 0; }
p { margin: .3rem 0 .8rem; max-width: 54rem; }
.faint, .note { color: var(--faint); }
.note { border-left: 3px solid var(--c); padding-left: .7rem; }
.facts { margin: 0; padding: 0; list-style: none; color: var(--faint); display: flex; flex-wrap: wrap; gap: 0 1.4rem; }
.facts b { color: var(--ink); font-weight: 600; overflow-wrap: anywhere; }

.text { font-size: 1.15rem; line-height: 2.2; margin: .6rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2.5rem; }
.chip { border-radius: 5px; padding: .14em .3em; color: #1c1e21; unicode-bidi: isolate; }
.chip sub { opacity: .75; font-size: .62em; margin-inline-start: .4em; unicode-bidi: isolate; }
.w { border-radius: 3px; unicode-bidi: isolate; }
.for { --side: var(--warm); } .against { --side: var(--cool); } .weight { --side: var(--d); }
.w.for, .w.against, .w.weight { padding: .14em .12em;
  background: color-mix(in srgb, var(--side) var(--s), transparent); }
.new { text-decoration: underline dotted var(--faint) 2px; text-underline-offset: .25em; }
.w.on { outline: 2px solid var(--ink); } tr.on { background: var(--cell); }
.scale { display: inline-block; width: 7em; height: .7em; border-radius: 2px; margin: 0 .5em;
  background: linear-gradient(90deg, var(--cool), var(--cell), var(--warm)); }

figure { margin: .6rem 0 0; display: flex; }
.gutter { flex: none; }
.scroll { overflow-x: auto; overflow-y: hidden; min-width: 0; padding-bottom: 3px; }
.many { display: flex; flex-wrap: wrap; gap: .8rem 2.5rem; }
svg { display: block; font: 12px var(--font); }
svg text { fill: var(--ink); pointer-events: none; }
svg text.faint { fill: var(--faint); } svg .small { font-size: 10.5px; }
svg .word { font-size: 13px; font-weight: 600; } svg .mid { text-anchor: middle; } svg .end { text-anchor: end; }
.back { fill: var(--cell); } .on > .back { stroke: var(--ink); stroke-width: 1.5; }
.warm { fill: var(--warm); } .cool { fill: var(--cool); } .good { fill: var(--good); } .much { fill: var(--d); }
.nothing { fill: none; pointer-events: all; }
.cross, .path, .grid, .line, .dots, .bar { pointer-events: none; }
.cross { stroke: var(--faint); opacity: .45; } .grid { stroke: var(--line); fill: none; }
.path { fill: none; stroke: var(--ink); stroke-width: 2; }
.s0 { --tone: var(--a); } .s1 { --tone: var(--b); } .s2 { --tone: var(--c); } .s3 { --tone: var(--d); }
.s4 { --tone: var(--e); } .s5 { --tone: var(--good); }
.line { fill: none; stroke: var(--tone); stroke-width: 1.6; }
.dots { fill: none; stroke: var(--tone); stroke-width: 5; stroke-linecap: round; }
.bar, svg text.tone { fill: var(--tone); }

.table { overflow-x: auto; margin-top: .6rem; }
table { border-collapse: collapse; font-size: .88rem; }
th { text-align: left; font-weight: 600; color: var(--faint); white-space: nowrap; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td .tag { white-space: nowrap; margin-right: .6em; }
.share { display: inline-block; height: .7em; border-radius: 2px; background: var(--good); }
.part { display: inline-block; border-radius: 4px; padding: 0 .35em .05em; margin: 0 .15em .2em 0; white-space: nowrap;
  background: color-mix(in srgb, var(--side, var(--cell)) var(--s, 0%), var(--cell)); }
.part u { display: block; height: 2px; margin: 0 0 1px; background: var(--e); text-decoration: none; }
.part small { opacity: .8; }
.part.unread { outline: 1px dashed var(--e); outline-offset: -1px; color: var(--faint); }
.edge { fill: none; stroke: var(--line); stroke-width: 1.5; } .edge.best { stroke: var(--d); stroke-width: 3; }
.edge.out { stroke-dasharray: 3 3; }
.node .back { stroke: var(--line); } .node.best .back { stroke: var(--d); stroke-width: 2; }
.node.ends .back { stroke: var(--good); stroke-width: 2; } .node.late .back { stroke: var(--c); stroke-width: 2; }
.node.out .back { fill: none; stroke-dasharray: 3 3; } .node.out text { fill: var(--faint); }
.key { display: inline-block; width: 1.6em; height: .9em; border-radius: 3px; border: 2px solid var(--line);
  margin: 0 .35em -.1em 1.1em; }
.key:first-child { margin-left: 0; }
.key.best { border-color: var(--d); } .key.ends { border-color: var(--good); }
.key.late { border-color: var(--c); } .key.out { border-style: dashed; border-width: 1px; }
.text.close { font-size: 1rem; line-height: 1.75; max-height: 62vh; overflow-y: auto; }
.text.close .w { padding: .12em 0; border-radius: 0; unicode-bidi: normal; }
.text.close .none { outline: 1px dashed var(--faint); outline-offset: -1px; }
.text i { color: var(--faint); opacity: .5; font-style: normal; }
.choose { display: flex; flex-wrap: wrap; align-items: baseline; gap: .3rem 1.2rem; }
button, select { font: inherit; color: inherit; background: var(--cell); border: 1px solid var(--line);
  border-radius: 4px; padding: .05em .45em; margin: 0 .4em .15em 0; cursor: pointer; }
.told { position: sticky; bottom: 0; padding: .4rem .6rem; background: var(--paper); border: 1px solid var(--line);
  font-size: .88rem; min-height: 8.6em; }
.option { display: grid; grid-template-columns: 9em 4.5em auto; align-items: center; }
.thin { stroke-width: 3; }
.head { display: inline-grid; font-size: .78rem; padding: .3em; } .head.chosen { outline: 2px solid var(--d); }
.head canvas { width: 150px; height: 150px; image-rendering: pixelated; }
footer { margin-top: 3rem; color: var(--faint); font-size: .85rem; }
@media (max-width: 760px) { .sides { grid-template-columns: 1fr; } }
"""

SCRIPT = """
const marked = document.getElementsByClassName("on");
const looked = document.querySelectorAll(".looked .w");
document.addEventListener("mouseover", event => {
  const looks = event.target.closest("[data-look]")?.dataset.look.split(" ") ?? [];
  for (const [place, strength] of looks.entries()) looked[place]?.style.setProperty("--s", `${strength}%`);
  const place = event.target.closest("[data-t]")?.dataset.t;
  for (const element of [...marked]) element.classList.remove("on");
  if (place === undefined) return;
  for (const element of document.querySelectorAll(`[data-t="${place}"]`)) element.classList.add("on");
});
const panes = [...document.querySelectorAll(".aligned")];
for (const pane of panes) pane.addEventListener("scroll", () => {
  for (const other of panes) if (other !== pane) other.scrollLeft = pane.scrollLeft;
}, { passive: true });
"""
