# SPDX-License-Identifier: Apache-2.0
"""A page in headless Chromium, driven over its DevTools protocol: JSON messages that end with NUL, through two pipes."""
import base64
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

NAMES = ("chromium-headless-shell", "chromium")
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}


class Browser:
    def __init__(self):
        program = next(filter(None, map(shutil.which, NAMES)))
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.commands = os.pipe()
        self.answers, from_browser = os.pipe()

        def pipes_place():  # the protocol needs the pipes as descriptors 3 and 4
            spare = [os.dup(to_browser), os.dup(from_browser)]
            far = [os.dup2(spare[0], 100), os.dup2(spare[1], 101)]
            os.dup2(far[0], 3)
            os.dup2(far[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
             f"--user-data-dir={self.profile.name}", "--host-resolver-rules=MAP * ~NOTFOUND", "about:blank"],
            preexec_fn=pipes_place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.numbers, self.events, self.rest, self.session = itertools.count(1), [], b"", None
        pages = []
        while not pages:  # a starting browser may have no page yet
            pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self.session = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait()
        self.profile.cleanup()

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.answers, 1 << 20)
            if not more:
                raise RuntimeError("chromium ended")
            self.rest += more
        first, self.rest = self.rest.split(b"\0", 1)
        return json.loads(first)

    def call(self, method, **params):
        number = next(self.numbers)
        words = {"id": number, "method": method, "params": params}
        if self.session:
            words["sessionId"] = self.session
        os.write(self.commands, json.dumps(words).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def seen(self, method):
        """Parameters of the events of this kind so far."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def open(self, path, width=1280, height=900, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        loads = len(self.seen("Page.loadEventFired"))
        self.call("Page.navigate", url=pathlib.Path(path).absolute().as_uri())
        while len(self.seen("Page.loadEventFired")) == loads:
            self.events.append(self.message())

    def run(self, expression):
        """The value of a JavaScript expression."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def click(self, selector):
        """A real click on the middle of an element."""
        x, y = self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: "center"}});
            const box = e.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name):
        code, text = KEYS[name]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, selector, text):
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select?.(); }})()")
        self.call("Input.insertText", text=text)

    def screenshot(self, path, whole=True):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}} if whole else {}
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **clip)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))
