//! Columns under each other.

const GAP: &str = "  ";

/// Lines of cells, each column as wide as its widest cell. The last one is left ragged.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| wide(cell)).max();
    let widths: Vec<usize> = (0..n_columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| cell.clone() + &" ".repeat(width - wide(cell)));
        format!("{}\n", cells.collect::<Vec<_>>().join(GAP).trim_end())
    };
    rows.iter().map(line).collect()
}

fn wide(cell: &str) -> usize {
    cell.chars().count()
}

/// What others wrote must not move the cursor or colour the screen.
pub(super) fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["ID", "NAME", "X"]), row(["ten_1", "Müller", "1"]), row(["t", "", ""])];
        assert_eq!(aligned(&rows), "ID     NAME    X\nten_1  Müller  1\nt\n");
    }

    #[test]
    fn what_others_wrote_cannot_steer_the_terminal() {
        assert_eq!(tame("a\x1b[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}
