<?php
/**
 * Writes a wiki of generated pages in MediaWiki's export format to standard output, and their titles, one a line, to
 * the file named last. The same seed and number give the same pages.
 *
 * Usage: php pages.php PAGES SEED TITLES-FILE
 *
 * Sizes are lognormal around 6 KiB of wikitext, cut to a range of 1 : 20: an encyclopaedia has many short articles and
 * few long ones. A page has a lead, an infobox and a navigation box by nested templates, sections of paragraphs, lists
 * and tables, links to other pages on every line, notes by a template, and categories. No extension of MediaWiki's
 * is needed.
 */
declare(strict_types=1);

if ($argc !== 4 || (int)$argv[1] < 1) {
    fwrite(STDERR, "usage: php pages.php PAGES SEED TITLES-FILE\n");
    exit(2);
}
[, $count, $seed, $titlesFile] = $argv;
$count = (int)$count;
mt_srand((int)$seed);

const SYLLABLES = ['al', 'an', 'ba', 'ber', 'dor', 'el', 'fen', 'gar', 'hal', 'in', 'ka', 'len', 'mar', 'nor', 'os',
    'pel', 'ra', 'sen', 'tal', 'um', 'ver', 'wil', 'zan', 'stein', 'feld', 'burg', 'dale', 'mouth'];

function uniform(): float
{
    return (mt_rand() + 0.5) / (mt_getrandmax() + 1.0);
}

function normal(): float
{
    return sqrt(-2.0 * log(uniform())) * cos(2.0 * M_PI * uniform());
}

function pick(array $from): mixed
{
    return $from[mt_rand(0, count($from) - 1)];
}

function word(): string
{
    $word = '';
    for ($i = mt_rand(1, 3); $i > 0; $i--) {
        $word .= pick(SYLLABLES);
    }
    return $word;
}

function sentence(array $titles): string
{
    $words = [];
    for ($i = mt_rand(8, 18); $i > 0; $i--) {
        $roll = uniform();
        $words[] = match (true) {
            $roll < 0.07 => '[[' . pick($titles) . ']]',
            $roll < 0.10 => '[[' . pick($titles) . '|' . word() . ']]',
            $roll < 0.12 => "''" . word() . "''",
            $roll < 0.13 => "'''" . word() . "'''",
            $roll < 0.135 => '[https://example.org/' . word() . ' ' . word() . ']',
            default => word(),
        };
    }
    return ucfirst(implode(' ', $words)) . '.' . (uniform() < 0.3 ? '{{Source|' . word() . '|' . mt_rand(1900, 2020) . '}}' : '');
}

function paragraph(array $titles): string
{
    $sentences = [];
    for ($i = mt_rand(2, 5); $i > 0; $i--) {
        $sentences[] = sentence($titles);
    }
    return implode(' ', $sentences) . "\n\n";
}

function table(array $titles): string
{
    $columns = mt_rand(3, 6);
    $text = "{| class=\"wikitable sortable\"\n|+ " . ucfirst(word()) . "\n";
    for ($c = 0; $c < $columns; $c++) {
        $text .= '! ' . ucfirst(word()) . "\n";
    }
    for ($r = mt_rand(4, 12); $r > 0; $r--) {
        $text .= "|-\n";
        for ($c = 0; $c < $columns; $c++) {
            $text .= '| ' . ($c === 0 ? '[[' . pick($titles) . ']]' : '{{Number|' . mt_rand(1, 9_999_999) . '}}') . "\n";
        }
    }
    return $text . "|}\n\n";
}

function bullets(array $titles): string
{
    $text = '';
    for ($i = mt_rand(4, 10); $i > 0; $i--) {
        $text .= pick(['*', '*', '**', '#']) . ' ' . sentence($titles) . "\n";
    }
    return $text . "\n";
}

function article(string $title, int $bytes, array $titles): string
{
    $text = '{{Infobox|name=' . $title . '|population={{Number|' . mt_rand(100, 9_999_999) . '}}|founded='
        . mt_rand(800, 1990) . '|region=[[' . pick($titles) . "]]}}\n'''$title''' " . paragraph($titles);
    while (strlen($text) < $bytes) {
        $text .= '== ' . ucfirst(word()) . ' ' . word() . " ==\n";
        for ($i = mt_rand(1, 4); $i > 0 && strlen($text) < $bytes; $i--) {
            $text .= match (mt_rand(0, 5)) {
                0 => table($titles),
                1 => bullets($titles),
                2 => '=== ' . ucfirst(word()) . " ===\n" . paragraph($titles),
                default => paragraph($titles),
            };
        }
    }
    $text .= '{{Navigation|' . implode('|', array_map(fn () => pick($titles), range(1, 8))) . "}}\n";
    return $text . '[[Category:' . ucfirst(pick(SYLLABLES)) . "]]\n[[Category:" . ucfirst(pick(SYLLABLES)) . "]]\n";
}

function page(string $title, int $namespace, string $text): string
{
    $escaped = htmlspecialchars($text, ENT_XML1);
    $title = htmlspecialchars($title, ENT_XML1);
    return "<page><title>$title</title><ns>$namespace</ns><revision><timestamp>2024-01-01T00:00:00Z</timestamp>"
        . '<contributor><username>Generator</username></contributor><model>wikitext</model>'
        . "<format>text/x-wiki</format><text xml:space=\"preserve\">$escaped</text></revision></page>\n";
}

$titles = [];
while (count($titles) < $count) {
    $titles[ucfirst(word()) . ' ' . word() . ' ' . (count($titles) + 1)] = true;
}
$titles = array_keys($titles);

echo '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">' . "\n";
echo page('Template:Number', 10, '<span class="number">{{formatnum:{{{1}}}}}</span>');
echo page('Template:Source', 10, '<sup title="{{lc:{{{1}}}}} {{{2|}}}">[{{ucfirst:{{{1}}}}}, {{{2|}}}]</sup>');
echo page('Template:Row', 10, "\n|-\n! {{ucfirst:{{{1}}}}}\n| {{{2|}}}");
echo page('Template:Infobox', 10, "{| class=\"wikitable infobox\"\n! colspan=\"2\" | {{{name|{{PAGENAME}}}}}"
    . '{{Row|population|{{{population|}}}}}{{Row|founded|{{{founded|}}}}}{{Row|region|{{{region|}}}}}' . "\n|}\n");
echo page('Template:Navigation', 10, "{| class=\"wikitable\"\n| [[{{{1}}}]] · [[{{{2}}}]] · [[{{{3}}}]] · [[{{{4}}}]]"
    . "\n|-\n| [[{{{5}}}]] · [[{{{6}}}]] · [[{{{7}}}]] · [[{{{8}}}]]\n|}\n");
foreach ($titles as $title) {
    $bytes = (int)(6144 * exp(0.75 * max(-2.0, min(2.0, normal()))));
    echo page($title, 0, article($title, $bytes, $titles));
}
echo "</mediawiki>\n";

if (file_put_contents($titlesFile, implode("\n", $titles) . "\n") === false) {
    fwrite(STDERR, "$titlesFile cannot be written\n");
    exit(1);
}
