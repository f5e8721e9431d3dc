"""The start page: what this is, and where to go."""

HOME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Pequod</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem;
         color: #1b2733; background: #fff }
  code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f1f4f7; border-radius: 4px }
  code { padding: .1em .3em } pre { padding: .8em 1em; overflow-x: auto }
  a { color: #0b6bcb }
  @media (prefers-color-scheme: dark) {
    body { color: #dde5ec; background: #12181f } code, pre { background: #1d2731 }
    a { color: #6db3f2 }
  }
</style>
</head>
<body>
<h1>Pequod</h1>
<p>An ordered key-value cache whose views, the <em>cache joins</em>, keep themselves fresh.</p>
<ul>
<li><a href="/v1/joins">/v1/joins</a>: the installed joins</li>
<li><a href="/v1/stats">/v1/stats</a>: keys, bytes and work, by table and by join</li>
<li><a href="/v1/scan?prefix=&amp;limit=20">/v1/scan</a>: rows of a range, here the first 20;
  also <code>/v1/get</code>, <code>/v1/count</code>, <code>/v1/explain</code></li>
<li><a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a>: is it up, does it take
  requests</li>
<li><a href="/metrics">/metrics</a>: for Prometheus</li>
<li><a href="/openapi.json">/openapi.json</a>: this interface, for programs</li>
</ul>
<p>Programs call any method with <code>POST /rpc</code>:</p>
<pre>curl localhost:7709/rpc -H 'Content-Type: application/json' \\
     -d '["put", "s|ann|bob", "1"]'</pre>
</body>
</html>
"""
