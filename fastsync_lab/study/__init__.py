"""What all studies share: the contract, one runner, one store of rows, one judge, one way to show.

Each module imports only those above it:

rows         what a run measured, as typed rows; medians and spreads
grid         tables and sentences, and their Markdown
documents    blocks of documents that a command writes
keeper       result files of runs that are no study's
judge        what figures must show, and verdicts on them
contract     what a study declares; file systems, schedulers, programs and cells
filesystems  the rows of the file-system axis: ext4 with and without our modules, and its peers
eager_bars   what eager syncing must show, in whichever study
programs     what is compiled for the guest
fio          a workload that several studies have
output       what our own benchmarks print
reading      a digest of the code that makes figures
store        result files
plan         which cells a run has, and what a figure of one depends on
runner       builds, boots, runs; goes on where it was interrupted
show         tables, and how the terminal shows them
figures      what is drawn of a study
plot         paints it
targets      what studies must show, as a table
gains        what a user gains, device by device: the README's block
pages        the documents with results
profiles     what an fsync costs on each modelled device, as a document has it
latencies    how exactly devices meet their model
calibration  how near a guest's processor comes to the host's
first_runs   how a stranger fares with `make demo`
html         tables and figures in a page of HTML
chapters     the report's sections about studies

docs/studies.md tells how a study is made.
"""
