<?php
/**
 * The result of `make mediawiki` in Markdown, from what the runs left in the work folder:
 * NAME.json (the run's summary), NAME-load.json (the clients' view), and where a witness watched NAME-witness.json,
 * and the periods of both in NAME.csv and NAME-witness.csv.
 *
 * Usage: php table.php FOLDER NAME [NAME ...]
 * The names are mediawiki-TARGET-LAW; the first of a target is what savings are measured against.
 */
declare(strict_types=1);

/** How far two telemetries of the same requests may be apart. */
const AGREED = 0.05;

/** The run summary, or what else is JSON. */
function read(string $file): array
{
    $text = @file_get_contents($file);
    $value = $text === false ? null : json_decode($text, true);
    if (!is_array($value)) {
        fwrite(STDERR, "$file cannot be read, or is no JSON object\n");
        exit(1);
    }
    return $value;
}

/** The periods of a run by their index. */
function periods(string $file): array
{
    $in = @fopen($file, 'r');
    if ($in === false) {
        fwrite(STDERR, "$file cannot be read\n");
        exit(1);
    }
    $header = fgetcsv($in);
    $rows = [];
    while (($row = fgetcsv($in)) !== false) {
        $row = array_combine($header, $row);
        $rows[(int)$row['index']] = $row;
    }
    return $rows;
}

function number(mixed $value, int $digits): string
{
    return $value === null ? 'unknown' : number_format((float)$value, $digits);
}

function change(mixed $value, mixed $reference): string
{
    return $value === null || !$reference ? '' : sprintf(' (%+.1f %%)', 100.0 * ($value / $reference - 1.0));
}

function percent(mixed $value, int $digits): string
{
    return $value === null ? 'unknown' : number_format(100.0 * $value, $digits) . ' %';
}

function median(array $values): ?float
{
    sort($values);
    $count = count($values);
    return $count === 0 ? null : ($values[intdiv($count - 1, 2)] + $values[intdiv($count, 2)]) / 2.0;
}

/** How far two values are apart, as a share of the second; null where one is not known. */
function apart(mixed $value, mixed $reference): ?float
{
    return $value === null || $value === '' || !(float)$reference
        ? null : abs((float)$value / (float)$reference - 1.0);
}

/** One target's table: a column for each run. */
function results(string $folder, array $names): void
{
    $runs = array_map(fn ($name) => read("$folder/$name.json"), $names);
    $clients = array_map(fn ($name) => read("$folder/$name-load.json"), $names);
    $first = $runs[0];
    $source = $first['energy_j']['source'] ?? 'unknown';
    echo '| | ' . implode(' | ', array_column($runs, 'law')) . " |\n|---|" . str_repeat('---|', count($runs)) . "\n";
    $row = function (string $title, callable $cell) use ($runs, $clients): void {
        echo "| $title | " . implode(' | ', array_map($cell, $runs, $clients)) . " |\n";
    };
    $row("energy, $source", fn ($run) => number($run['energy_j']['value'], 0) . ' J'
        . ($run === $first ? '' : change($run['energy_j']['value'], $first['energy_j']['value'])));
    $row('mean power / mean cap', fn ($run) => number($run['power_w']['consumed_mean'], 1) . ' / '
        . number($run['power_w']['allocated_mean'], 1) . ' W');
    $row('power ratio (consumed / allocated)', fn ($run) => number($run['power_w']['ratio'], 2));
    $row('cores, mean', fn ($run) => number($run['cores']['mean'], 2)
        . ($run === $first ? '' : change($run['cores']['mean'], $first['cores']['mean'])));
    $row('utilisation', fn ($run) => percent($run['utilisation_mean'], 0));
    $row('P50 / P95 / P99 of the whole run', fn ($run) => number($run['latency_ms']['p50'], 0) . ' / '
        . number($run['latency_ms']['p95'], 0) . ' / ' . number($run['latency_ms']['p99'], 0) . ' ms');
    $row('periods with P95 over ' . number($first['slo']['target_ms'], 0) . ' ms',
        fn ($run) => percent($run['slo']['periods_over'], 1));
    $row('requests answered, failed', fn ($run) => number($run['requests']['completed'], 0) . ', '
        . number($run['requests']['failed'], 0));
    $row('of the clients, failed', fn ($run, $client) => number($client['offered'], 0) . ', '
        . number($client['failed_total'], 0));
    echo "\n";
}

/** HAProxy's log beside our gateway in front of it, for one run. */
function agreement(string $folder, string $name): void
{
    [$log, $witness] = [read("$folder/$name.json"), read("$folder/$name-witness.json")];
    [$theirs, $ours] = [periods("$folder/$name.csv"), periods("$folder/$name-witness.csv")];
    $rate = fn (array $run) => $run['requests']['offered'] / $run['duration_s'];
    $differences = ['slo_ms' => [], 'arrivals' => []];
    foreach ($theirs as $index => $period) {
        foreach ($differences as $column => $_) {
            $difference = apart($period[$column], $ours[$index][$column] ?? null);
            if ($difference !== null) {
                $differences[$column][] = $difference;
            }
        }
    }
    $line = fn (string $what, $log, $ours, int $digits, array $each) => sprintf("| %s | %s | %s | %s | %s |\n",
        $what, number($log, $digits), number($ours, $digits), percent(apart($log, $ours), 2), $each === [] ? '' : percent(median($each), 2));
    echo "| {$log['law']} | HAProxy's log | our gateway | apart, over the run | apart, median of the periods |\n";
    echo "|---|---|---|---|---|\n";
    echo $line('P95, ms', $log['latency_ms']['p95'], $witness['latency_ms']['p95'], 1, $differences['slo_ms']);
    echo $line('P50, ms', $log['latency_ms']['p50'], $witness['latency_ms']['p50'], 1, []);
    echo $line('requests/s', $rate($log), $rate($witness), 2, $differences['arrivals']);
    echo "\n";
    $most = max(apart($log['latency_ms']['p95'], $witness['latency_ms']['p95']) ?? INF, apart($rate($log), $rate($witness)) ?? INF);
    echo $most <= AGREED ? 'They agree' : '**They do not agree**',
        ' within ' . percent(AGREED, 0) . " on P95 and rate over the run.\n\n";
}

if ($argc < 3) {
    fwrite(STDERR, "usage: php table.php FOLDER NAME [NAME ...]\n");
    exit(2);
}
$folder = $argv[1];
$targets = [];
foreach (array_slice($argv, 2) as $name) {
    $targets[explode('-', $name)[1]][] = $name;
}
$titles = ['gateway' => 'MediaWiki behind our gateway', 'haproxy' => "MediaWiki behind HAProxy, by HAProxy's log"];
foreach ($targets as $target => $names) {
    echo '**' . ($titles[$target] ?? $target) . "**\n\n";
    results($folder, $names);
    foreach ($names as $name) {
        if (is_file("$folder/$name-witness.json")) {
            agreement($folder, $name);
        }
    }
}
