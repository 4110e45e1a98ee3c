const MAX_FRAMES = 20_000, MAX_BYTES = 64 * 2 ** 20, MAX_SECONDS = 60;  // frames of a series, bytes of a file, seconds of a recording
const table = JSON.parse(byId("give").dataset.table), shown = byId("shown");
let latest = 0, answers = [], at = -1, isRecording = false, recorder = null;

/** Throws a RangeError for a series that would block the page. */
function checkFrames(frames) {
  if (frames > MAX_FRAMES) throw new RangeError(`the page reads series of at most ${MAX_FRAMES.toLocaleString("en")} frames; the module reads longer ones`);
}

/** Returns the instructions, with the labels. */
function instructions(model) {
  return `${model.rate ? "Choose or record a sound." : "Choose a file, or write numbers."} The labels are ${clipped(model.labels.join(", "), 300)}.`;
}

/** Splits numbers into rows. */
function toRows(numbers, width) {
  return Array.from({ length: numbers.length / width }, (_, t) => numbers.subarray(t * width, (t + 1) * width));
}

/** Returns the samples of a sound. The browser decodes and resamples files that the C code cannot read. */
async function decode(model, bytes) {
  try {
    return { input: model.samples(bytes), note: "" };
  } catch {
    let sound;
    try {
      sound = await new OfflineAudioContext(1, 1, model.rate).decodeAudioData(bytes.buffer);
    } catch {
      throw new TypeError("neither the model nor this browser can read this sound");
    }
    const channels = Array.from({ length: sound.numberOfChannels }, (_, k) => sound.getChannelData(k));
    return { input: channels[0].map((_, t) => sumOf(channels.map(channel => channel[t])) / channels.length), note: ", decoded by the browser" };
  }
}

/** Returns the series in a file. */
async function seriesOf(model, file) {
  if (file.size > MAX_BYTES) throw new RangeError(`the page reads files of at most ${MAX_BYTES / 2 ** 20} MiB; the module reads larger ones`);
  const read = readerOf(file.name, model.width, table), bytes = new Uint8Array(await file.arrayBuffer());
  if (read) return read(bytes);
  if (!model.rate) throw new TypeError("unknown suffix; expected .npy, .csv or .tsv, or an idx file");
  const sound = await decode(model, bytes);
  checkFrames(sound.input.length / model.rate / model.secondsPerFrame);
  return [sound];
}

/** Yields series with their outputs. */
function* answerAll(model, file, series) {
  for (const { name, place = "", input, note = "" } of series) {
    const [answer] = model.predict([input]), isSound = input instanceof Float32Array, count = isSound ? input.length / model.rate : input.length;
    const size = isSound ? `${count.toFixed(2)} s` : `${count.toLocaleString("en")} frame${count === 1 ? "" : "s"}`;
    yield { ...answer, name: name || file + place, size: size + note };
  }
}

/** Computes the outputs of `sources`, which have a name and a function that returns series; shows the first output. */
async function read(model, sources, show) {
  const call = ++latest, start = performance.now(), found = [], failures = [];
  for (const { name, series } of sources) {
    byId("speed").textContent = `Reading ${name} …`;
    try {
      await slowly(answerAll(model, name, await series()), answer => found.push(answer), () => call === latest);
    } catch (error) {
      failures.push(`${name}: ${error.message}`);
    }
    if (call !== latest) return;
  }
  answers = found;
  byId("wrong").hidden = !failures.length;
  if (failures.length) complain(new Error(failures[0] + (failures.length > 1 ? ` (and ${failures.length - 1} more)` : "")));
  byId("speed").textContent = found.length > 1 ? speedOf(found, model.rate ? "sounds" : "series", start) : "";
  show(0);
}

/** Records until the button is pressed again, and returns the recording. */
async function record(button) {
  if (!navigator.mediaDevices?.getUserMedia || !window.MediaRecorder) throw new Error("this browser does not support recording on this page");
  const wishes = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  const stream = await navigator.mediaDevices.getUserMedia({ audio: wishes }).catch(error => {
    throw new Error(error.name === "NotAllowedError" ? "access to the microphone was denied" : `there is no microphone (${error.message})`);
  });
  const pieces = [], begin = performance.now();
  recorder = new MediaRecorder(stream);
  recorder.addEventListener("dataavailable", event => pieces.push(event.data));
  const end = new Promise(done => recorder.addEventListener("stop", done));
  const tick = () => {
    const seconds = Math.floor((performance.now() - begin) / 1000);
    button.textContent = `Stop (${seconds} s)`;
    if (seconds >= MAX_SECONDS) recorder.stop();
  };
  const clock = setInterval(tick, 500);
  recorder.start();
  tick();
  await end;
  clearInterval(clock);
  button.textContent = "Record";
  for (const track of stream.getTracks()) track.stop();
  return new File(pieces, "recording");
}

/** Starts the page; `cells` makes the cells of a table row, and `tell` shows an output. */
function listen(model, cells, tell) {
  const show = place => {
    if (!place) showRows(answers, cells);
    look(place);
  };
  const look = place => {
    mark(shown, at = place);
    tell(answers[place]);
  };
  const begin = sources => read(model, sources, show).catch(complain), sourceOf = file => ({ name: file.name, series: () => seriesOf(model, file) });
  browse(shown, () => Math.min(answers.length, MAX_ROWS), () => at, look);
  byId("files").addEventListener("change", event => begin([...event.target.files].map(sourceOf)));
  for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, event => {
    event.preventDefault();
    byId("give").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) begin([...event.dataTransfer.files].map(sourceOf));
  });
  byId("record")?.addEventListener("click", async event => {
    if (isRecording) return recorder?.stop();
    isRecording = true;
    try {
      begin([sourceOf(await record(event.target))]);
    } catch (error) {
      complain(error);
    }
    isRecording = false;
    recorder = null;
  });
  byId("text")?.addEventListener("input", event => {
    const typed = event.target.value.trim(), isPlain = !/[\t,;]/.test(typed.split("\n", 1)[0]);
    const text = isPlain ? typed.replaceAll(/[^\S\n]+/g, ",") : typed;
    begin(typed ? [{ name: "numbers", series: async () => seriesOfTable(text, model.width, table, true) }] : []);
  });
  tell(undefined);
}

