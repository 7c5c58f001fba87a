#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows: the tests can fail. The quick faults of this folder, each planted in a copy: the test that it names must go red.
exec ci/faults/run.py --quick "$BUILD"
