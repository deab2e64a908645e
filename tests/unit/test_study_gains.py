"""What the README says that a user gains."""

from fastsync_lab.studies import studies
from fastsync_lab.study import figures, gains
from fastsync_lab.study.figures import Bar, Figure
from fastsync_lab.study.grid import Part, in_markdown
from fastsync_lab.study.store import Result
from tests.unit.study_results import cell, result, with_ours


def parts_of_readme(*results: Result) -> list[Part]:
    return gains.gain_parts(results, studies())


def test_the_readme_says_for_each_device_what_a_user_gains() -> None:
    seven = with_ours((1466, 1880), kernel="7.2.3", device="ufs")
    text = in_markdown(parts_of_readme(with_ours((230, 532)), seven))
    assert "| `sata-ssd`: Consumer SATA SSD | 230 → 532 (**2.31×**) | not measured yet |" in text
    assert "1,466" not in text  # another kernel
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(figures.DEVICES)
    assert rows[-1].endswith("| not measured yet | – | – | – | – |")
    assert "Linux 6.12.1+deb-amd64" in text and "median" not in text


def test_the_readme_says_how_far_runs_differ() -> None:
    text = in_markdown(parts_of_readme(with_ours((200, 400), runs=5)))
    assert "200 → 400 (**2.00×**)" in text
    assert "4 KiB write: medians of 5 runs; each run is within 0.1 % of its median." in text
    assert "one run" not in text
    once = with_ours((200, 400), device="ufs")
    text = in_markdown(parts_of_readme(with_ours((200, 400), runs=5), once))
    assert "4 KiB write: medians of 5 runs (1 on some devices); each" in text
    assert "one run" not in text


def test_the_readme_puts_what_is_of_as_many_runs_together() -> None:
    files = result(
        [
            cell(system, speeds, workload=workload)
            for workload in ("append", "create")
            for system, speeds in (("stock", [100.0, 120.0]), ("defer+eager", [200.0, 200.0]))
        ],
        "files",
    )
    text = in_markdown(parts_of_readme(files))
    assert (
        " 4 KiB append, new file: medians of 2 runs; each run is within 9.1 % of its median."
        in text
    )


def test_the_readme_names_what_is_of_one_run() -> None:
    insert = result(
        [cell(name, [20.0], workload="WAL", subject="insert") for name in ("stock", "defer+eager")],
        "sqlite",
    )
    several = with_ours((200, 400), runs=5)
    text = in_markdown(parts_of_readme(several, insert))
    one_each = f" SQLite insert, WAL: one run each. {gains.AGAIN}"
    assert text.endswith(f" each run is within 0.1 % of its median.{one_each}")
    alone = in_markdown(parts_of_readme(insert))
    assert alone.endswith(one_each) and "median" not in alone


def test_the_readme_holds_ours_against_a_peer_from_the_worst_device_to_the_best() -> None:
    def beside(ours: float, peer: float, device: str) -> Result:
        cells = [
            cell(system, [value], workload="append")
            for system, value in (("stock", 100.0), ("defer+eager", ours), ("f2fs", peer))
        ]
        return result(cells, "files", device=device)

    found = [beside(180, 200, "ufs"), beside(300, 200, "emmc"), beside(100, 100, "nvme")]
    text = in_markdown(parts_of_readme(*found))
    assert text.endswith(
        " Speed divided by F2FS's, from the worst device to the best: 4 KiB append 0.90–1.50×. "
        f"{gains.AGAIN}"
    )
    assert "F2FS" not in in_markdown(parts_of_readme(with_ours((200, 400))))


def test_the_readme_names_what_is_slower_than_on_stock_and_where_most() -> None:
    parts = gains.losses(
        [
            with_ours((1000, 990), device="ufs"),
            with_ours((1000, 985), device="emmc"),
            with_ours((1000, 989), device="nvme"),
            with_ours((1000, 500), kernel="7.2.3"),
        ]
    )
    assert parts == [
        "Slower than on stock, by study and workload: `overwrite` random (0.985× on `emmc`)."
    ]
    assert gains.losses([with_ours((1000, 996)), with_ours((1000, 1200), device="ufs")]) == []
    assert gains.losses([with_ours((10, 9.9))]) and not gains.losses([with_ours((10, 9.9), runs=5)])
    assert "Slower" in in_markdown(parts_of_readme(with_ours((1000, 985))))


def test_the_readme_of_nothing_measured_says_so_plainly() -> None:
    text = in_markdown(parts_of_readme())
    assert text.endswith("All of it: not measured yet.") and text.count("not measured yet") == 27
    assert gains.picture([]) is None


def test_the_readme_has_a_picture_of_what_a_user_gains() -> None:
    found = gains.picture([with_ours((230, 460)), with_ours((1, 2), kernel="7.2.3")])
    bar = Bar("defer+eager", "4 KiB write", {"": 2.0}, "2.00 (230 → 460/s)")
    assert found == Figure(
        *("speed", "gains", "fsync with fastsync", "Linux 6.12.1", "times the speed of stock ext4"),
        {"sata-ssd": [bar]},
        reference=(1.0, "stock ext4"),
    )


def test_the_readme_has_a_column_for_each_gain() -> None:
    grid = gains.gains({}, studies())
    assert (grid.head[:2], grid.texts) == (["device", "4 KiB write"], 1)
    assert len(grid.head) == len(gains.SHOWN) + 1 == len(grid.lines[0])


def slow(*speeds: tuple[str, str, float], device: str = "ufs") -> Result:
    """Results of (system, workload, speed)."""
    return result([cell(one, [speed], workload=name) for one, name, speed in speeds], device=device)


def test_slower_is_what_is_ours_and_has_stock_beside_it() -> None:
    assert gains.losses([slow(("defer+eager", "a", 1.0))]) == []
    assert gains.losses([slow(("stock", "a", 9.0), ("defer", "a", 1.0))]) == []
    assert gains.losses([with_ours((1000, 995))]) == []
    no_rates = [cell(name, [9.0]) for name in ("stock", "defer+eager")]
    del no_rates[0]["runs"][0]["subjects"][""]["ops_per_s"]
    assert gains.losses([result(no_rates)]) == []
    several = slow(("stock", "a", 10.0), ("defer+eager", "a", 9.0),
                   ("stock", "b", 10.0), ("defer+eager", "b", 8.0))  # fmt: skip
    assert gains.losses([several]) == [
        "Slower than on stock, by study and workload: `overwrite` a (0.900× on `ufs`), "
        "`overwrite` b (0.800× on `ufs`)."
    ]
    cells = [cell(name, [speed], workload="a") for name, speed in
             (("stock", 10.0), ("defer+eager", 7.0))]  # fmt: skip
    mobile = result(cells, "mobile", device="emmc")
    assert gains.losses([several, mobile])[0].endswith("`mobile` a (0.700× on `emmc`).")


def test_each_gain_has_its_own_range_over_a_peer() -> None:
    systems = ("stock", "defer+eager", "f2fs")
    cells = [
        cell(system, [speed], workload=workload)
        for workload, speeds in (("append", (1.0, 3.0, 2.0)), ("create", (1.0, 2.0, 4.0)))
        for system, speed in zip(systems, speeds, strict=True)
    ]
    assert gains.beside_peer([result(cells, "files")]) == [
        "Speed divided by F2FS's, from the worst device to the best: "
        "4 KiB append 1.50–1.50×, new file 0.50–0.50×."
    ]


def with_p99(*p99_ms: float, device: str) -> Result:
    """Results with the p99 of stock and of ours, the runs of each being alike."""
    cells = [cell(name, [9.0]) for name in ("stock", "defer+eager")]
    for one, value in zip(cells, p99_ms, strict=True):
        one["runs"][0]["subjects"][""]["p99_ns"] = value * 1e6
    return result(cells, device=device)


def test_the_readme_names_what_has_a_longer_p99_and_where_most() -> None:
    found = [with_p99(2.0, ours, device=name) for ours, name in ((2.3, "ufs"), (3.0, "emmc"))]
    assert gains.losses([*found, with_p99(2.0, 2.5, device="nvme")]) == [
        "With a longer p99, by study and workload: `overwrite` random (1.50× on `emmc`)."
    ]
    assert gains.losses([with_p99(2.0, 2.2, device="ufs")]) == []
    assert gains.losses([with_p99(2.0, 1.0, device="ufs")]) == []


def test_the_readme_says_how_its_table_is_repeated() -> None:
    text = in_markdown(parts_of_readme(with_ours((200, 400))))
    assert "`./fastsync run --full overwrite files sqlite --kernel 6.12`" in text
    assert "./fastsync run" not in in_markdown(parts_of_readme())
