#!/bin/sh
# Logistic regression in awk on the breast cancers that scikit-learn ships: benign or malignant?
# Usage: train.sh --lr RATE --decay L2 --epochs N --seed N
# For ndsweep, the one line that prints JSON was added.
set -eu
lr=0.1 decay=0 epochs=20 seed=0
while [ $# -gt 1 ]; do
    case $1 in
        --lr) lr=$2 ;;
        --decay) decay=$2 ;;
        --epochs) epochs=$2 ;;
        --seed) seed=$2 ;;
    esac
    shift 2
done
find='import importlib.util as u; print(u.find_spec("sklearn").submodule_search_locations[0])'
data=$(python -c "$find")/datasets/data/breast_cancer.csv

awk -F , -v lr="$lr" -v decay="$decay" -v epochs="$epochs" -v seed="$seed" '
    # The sum over the inputs, at the last place 1 for the bias.
    function score(row, i, sum) {
        for (i = 1; i <= inputs + 1; i++) sum += w[i] * x[row, i]
        return sum
    }
    NR > 1 {
        inputs = NF - 1
        for (i = 1; i <= inputs; i++) {
            x[NR - 1, i] = $i; mean[i] += $i; squares[i] += $i * $i
        }
        x[NR - 1, NF] = 1; is_benign[NR - 1] = $NF
    }
    END {
        rows = NR - 1; srand(seed)
        for (i = 1; i <= inputs; i++) {
            mean[i] /= rows; sd = sqrt(squares[i] / rows - mean[i] ^ 2)
            for (row = 1; row <= rows; row++) x[row, i] = (x[row, i] - mean[i]) / sd
        }
        for (epoch = 1; epoch <= epochs; epoch++) {
            # Every third row is held out.
            for (k = 1; k <= rows; k++) {
                row = 1 + int(rand() * rows); if (row % 3 == 0) continue
                wrong = 1 / (1 + exp(-score(row))) - is_benign[row]
                for (i = 1; i <= inputs + 1; i++) w[i] -= lr * (wrong * x[row, i] + decay * w[i])
            }
            errors = held = 0
            for (row = 3; row <= rows; row += 3) {
                held++; errors += (score(row) > 0) != is_benign[row]
            }
            printf "{\"step\": %d, \"num_steps\": %d, \"validation_error\": %g}\n", epoch, epochs, errors / held  # ndsweep
        }
    }
' "$data"
