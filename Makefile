# Everything that a fresh Debian 12 machine needs, and everything one does with this tree.

APT_PACKAGES := bc binutils bison bubblewrap ca-certificates debian-archive-keyring e2fsprogs \
	erofs-utils file flex gcc gcc-12 git kmod libc6-dev libelf-dev libmariadb-dev make \
	mariadb-server-core mmdebstrap patch perl python3-venv qemu-system-x86 shellcheck sparse \
	uidmap xz-utils
SOURCE_PACKAGE := linux-source-6.12
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
PYTHON := .venv/bin/python
export PYTHONUTF8 := 1
PYTHON_CODE := fastsync_lab tests
KERNELS := $(shell sed -n 's/^\[kernel\."\(.*\)"\]$$/\1/p' fastsync_lab/host/kernels.toml)
KERNEL_IN_FULL := 6.12
KERNEL_IN_SHORT := 7.2
# Two more than processors, for a worker waits now and then: for the lock of a build, for a guest's end.
WORKERS := $(shell expr $$(nproc) + 2)
PYTEST := $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --durations 20

builds_of = build-$(1) build-$(1)-stock

# Data races take two processors.
TESTS_WITH_KCSAN := tests/vm/test_stress.py tests/vm/test_multigrain.py

.PHONY: help setup packages build demo test test-all test-debug test-unit mutants first-runs lint lint-lab format clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
	@echo
	@echo "  KERNEL=SERIES   for build, test and test-debug: another kernel, one of $(KERNELS),"
	@echo "                  or a version of one (like 6.12.N)"
	@echo "  FASTSYNC_CACHE=FOLDER"
	@echo "                  where kernels, chroots and root images are kept, in fastsync/ (default: ~/.cache)"

setup: packages .venv/complete ## install what is needed (apt as root or by sudo, pip into .venv)

packages:
	@missing=$$(for name in $(APT_PACKAGES); do \
		dpkg-query -W -f '$${db:Status-Status}\n' $$name 2>/dev/null | grep -qx installed \
			|| echo $$name; done); \
	if [ -n "$$missing" ] || [ -z "$$(apt-cache madison $(SOURCE_PACKAGE))" ]; then \
		$(SUDO) apt-get -q update || exit; \
	fi; \
	if [ -n "$$missing" ]; then \
		echo "installing" $$missing; \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive \
			apt-get -q -y install --no-install-recommends $$missing; \
	fi

.venv/complete: requirements.txt | packages
	@echo "installing Python packages into .venv"
	@python3 -m venv .venv
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

build: $(call builds_of,$(or $(KERNEL),$(KERNEL_IN_FULL))) ## the modules, ours and stock, for the newest 6.12.y or KERNEL

build-%-stock: setup
	@./fastsync build --kernel $* --stock

build-%: setup
	@./fastsync build --kernel $*

demo: setup ## a few minutes: fio and SQLite on stock and on fastsync, one table and one plot
	@./fastsync run overwrite sqlite --quick --device sata-ssd --plot results/demo.png

test: ## all tests on 6.12, and on 7.2 a short one; or all tests on KERNEL
	@$(MAKE) --no-print-directory -j lint-lab \
		$(foreach kernel,$(or $(KERNEL),$(KERNEL_IN_FULL) $(KERNEL_IN_SHORT)),$(call builds_of,$(kernel)))
	@$(PYTEST) --kernel $(or $(KERNEL),$(KERNEL_IN_FULL)) -m "$(or $(SELECT),not long)"
ifndef KERNEL
	@$(PYTEST) --kernel $(KERNEL_IN_SHORT) -m short tests/vm
endif

test-all: setup ## all tests on every kernel
	@for kernel in $(KERNELS); do \
		$(MAKE) --no-print-directory test KERNEL=$$kernel SELECT="long or not long" || exit; \
	done

test-debug: setup ## the VM tests and more stress, on kernels that look for bugs
	@./fastsync build --debug --kernel $(or $(KERNEL),$(KERNEL_IN_FULL))
	@$(PYTEST) --kernel $(or $(KERNEL),$(KERNEL_IN_FULL)) --debug-kernel kasan tests/vm
	@$(PYTEST) --kernel $(or $(KERNEL),$(KERNEL_IN_FULL)) --debug-kernel kcsan $(TESTS_WITH_KCSAN)

test-unit: setup ## only what needs no virtual machine
	@$(PYTHON) -m pytest tests/unit

mutants: setup ## whether a test notices each small change of the code that judges; docs/mutants.md
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements-mutants.txt
	@$(PYTHON) -m fastsync_lab.host.mutants

first-runs: setup ## make demo in ten fresh clones with empty caches, half of them beside apt; docs/lab.md
	@$(PYTHON) -m fastsync_lab.cli.first_runs

lint: lint-lab ## lint-lab; checkpatch, sparse and W=1 on kernel/, for every kernel
	@$(PYTHON) -m fastsync_lab.host.lint

lint-lab: setup ## ruff, mypy and shellcheck, which make test begins with
	@.venv/bin/ruff check $(PYTHON_CODE)
	@.venv/bin/ruff format --check $(PYTHON_CODE)
	@.venv/bin/mypy
	@shellcheck fastsync_lab/machine/guest/*.sh fastsync_lab/*/*.sh

format: setup ## let ruff lay out the Python code
	@.venv/bin/ruff format $(PYTHON_CODE)

clean: ## remove what was built; ./fastsync clean --cache removes the kernels' cache too
	@rm -rf build
